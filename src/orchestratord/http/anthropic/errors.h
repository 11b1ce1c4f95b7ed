#pragma once
// Errors as clients of the Anthropic API read them. Pure.
//
// {"type":"error","error":{"type","message","llorch":{...}},"request_id"}: `llorch` is the error body of /v2, so that nothing
// is lost; `request_id` is the correlation id.
#include <string>

#include "base/error.h"
#include "net/http/message.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::anthropic {

// Appends the object {"type":"error",...}.
void append_error(std::string& out, const wire::ErrorBody& error, const base::CorrelationId& correlation_id);

// The status and headers of net::http::error_response(); besides, X-Should-Retry says what the official clients cannot
// know from the status, and Request-Id is the correlation id.
net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id);

}  // namespace llorch::orchestratord::http::anthropic
