#pragma once
// Errors as clients of the OpenAI API read them. Pure.
//
// {"error":{"message","type","param","code","llorch":{...}}}: `llorch` is the error body of /v2, so that nothing is lost.
// `code` is that API's where it has one, else ours in lower case.
#include <string>

#include "base/error.h"
#include "net/http/message.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::openai {

// Appends the object {"error":{...}}.
void append_error(std::string& out, const wire::ErrorBody& error);

// The status and headers of net::http::error_response(); besides, X-Should-Retry says what the official clients cannot
// know from the status, and X-Request-Id is the correlation id.
net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id);

}  // namespace llorch::orchestratord::http::openai
