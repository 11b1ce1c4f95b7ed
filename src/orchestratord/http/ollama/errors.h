#pragma once
// Errors as clients of the Ollama API read them: {"error":"message","llorch":{...}} with the error body of /v2. Pure.
#include <string>

#include "base/error.h"
#include "net/http/message.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::ollama {

void append_error(std::string& out, const wire::ErrorBody& error);

// The status and headers of net::http::error_response().
net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id);

}  // namespace llorch::orchestratord::http::ollama
