#pragma once
// Errors as clients of llama.cpp's server read them: {"error":{"code","message","type","llorch":{...}}} with the HTTP status as
// `code` and the error body of /v2. Pure.
#include "base/error.h"
#include "net/http/message.h"

namespace llorch::orchestratord::http::llamacpp {

// The status and headers of net::http::error_response().
net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id);

}  // namespace llorch::orchestratord::http::llamacpp
