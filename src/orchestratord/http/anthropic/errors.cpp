#include "orchestratord/http/anthropic/errors.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error_code.h"
#include "base/json_text.h"
#include "net/http/error_response.h"
#include "orchestratord/http/chat/context_excess.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string message_of(const wire::ErrorBody& error) {
  const auto excess = chat::context_excess(error);
  if (!excess || !excess->prompt_tokens) return error.message;
  if (*excess->prompt_tokens > excess->context_tokens) {
    return fmt::format("prompt is too long: {} tokens > {} maximum. {}", *excess->prompt_tokens, excess->context_tokens,
                       error.message);
  }
  if (!excess->max_tokens) return error.message;
  return fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}. {}", *excess->prompt_tokens,
                     *excess->max_tokens, excess->context_tokens, error.message);
}

}  // namespace

void append_error(std::string& out, const wire::ErrorBody& error, const base::CorrelationId& correlation_id) {
  const auto code = base::error_code_from_name(error.code).value_or(base::ErrorCode::kInternal);
  out.append(R"({"type":"error","error":{"type":")").append(type_of(base::info(code).http_status));
  out += R"(","message":)";
  base::append_json_string(out, message_of(error));
  out.append(R"(,"llorch":)").append(wire::encode(error)).append(R"(},"request_id":)");
  base::append_json_string(out, correlation_id.value);
  out += '}';
}

net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id) {
  net::http::Response response = net::http::error_response(error, correlation_id);
  // What the envelope settles, such as a 429's delay and what is redacted, is settled here as well.
  const wire::ErrorBody body = wire::error_body(net::http::error_of(response), correlation_id);
  response.body.clear();
  append_error(response.body, body, correlation_id);
  response.headers.set("X-Should-Retry", body.retriable ? "true" : "false");
  response.headers.set("Request-Id", correlation_id.value);
  return response;
}

}  // namespace llorch::orchestratord::http::anthropic
