#pragma once
// Errors as the router of /v1 writes them: one flat object {code, message, retriable, retry_after_ms?, policy_label?}.
#include "net/http/message.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::v1 {

net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id);

}  // namespace llorch::orchestratord::http::v1
