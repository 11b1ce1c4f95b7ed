#include "orchestratord/http/openai/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error_code.h"
#include "base/json_text.h"
#include "net/http/error_response.h"
#include "orchestratord/http/chat/context_excess.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

using base::ErrorCode;

std::string_view detail_of(const wire::ErrorBody& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name && std::holds_alternative<std::string>(value)) return std::get<std::string>(value);
  }
  return {};
}

// Codes that programs compare with; empty: that API has none for it.
std::string_view their_code(ErrorCode code, const wire::ErrorBody& error) {
  switch (code) {
    case ErrorCode::kMissingToken:
    case ErrorCode::kBadToken: return "invalid_api_key";
    case ErrorCode::kModelNotFound: return "model_not_found";
    case ErrorCode::kNotFound: return "unknown_url";
    case ErrorCode::kQueueFull:
    case ErrorCode::kQueueFullDropLru:
    case ErrorCode::kQuotaExceeded: return "rate_limit_exceeded";
    default: break;
  }
  if (detail_of(error, "reason") == "CONTEXT_TOO_LARGE") return "context_length_exceeded";
  if (detail_of(error, "reason") == "unknown") return "unknown_parameter";
  if (detail_of(error, "reason") == "not_kept") return "previous_response_not_found";
  return {};
}

std::string_view type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

std::string message_of(const wire::ErrorBody& error) {
  const auto excess = chat::context_excess(error);
  if (!excess) return error.message;
  std::string ours = error.message;
  if (!ours.empty() && ours[0] >= 'A' && ours[0] <= 'Z') ours[0] = static_cast<char>(ours[0] - 'A' + 'a');
  return fmt::format("This model's maximum context length is {} tokens. However, {}", excess->context_tokens, ours);
}

}  // namespace

void append_error(std::string& out, const wire::ErrorBody& error) {
  const ErrorCode code = base::error_code_from_name(error.code).value_or(ErrorCode::kInternal);
  const std::string_view field = code == ErrorCode::kModelNotFound ? "model" : detail_of(error, "field");
  std::string name(their_code(code, error));
  if (name.empty()) {
    for (const char c : error.code) name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  out += R"({"error":{"message":)";
  base::append_json_string(out, message_of(error));
  out.append(R"(,"type":")").append(type_of(base::info(code).http_status)).append(R"(","param":)");
  if (field.empty()) {
    out += "null";
  } else {
    base::append_json_string(out, field);
  }
  out += R"(,"code":)";
  base::append_json_string(out, name);
  out.append(R"(,"llorch":)").append(wire::encode(error)).append("}}");
}

net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id) {
  net::http::Response response = net::http::error_response(error, correlation_id);
  // What the envelope settles, such as a 429's delay and what is redacted, is settled here as well.
  const wire::ErrorBody body = wire::error_body(net::http::error_of(response), correlation_id);
  response.body.clear();
  append_error(response.body, body);
  response.headers.set("X-Should-Retry", body.retriable ? "true" : "false");
  response.headers.set("X-Request-Id", correlation_id.value);
  return response;
}

}  // namespace llorch::orchestratord::http::openai
