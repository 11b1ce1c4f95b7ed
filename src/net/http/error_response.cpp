#include "net/http/error_response.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "base/parse_json.h"

namespace llorch::net::http {
namespace {

namespace json = boost::json;
constexpr std::int64_t kDefaultRetryAfterMs = 1000;
constexpr std::string_view kDefaultPolicyLabel = "reject";  // the queue's default policy

json::value to_json(const base::DetailValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  return json::string(base::redact(std::get<std::string>(value)));
}

base::DetailValue to_detail(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_string()) return std::string(value.get_string());
  return json::serialize(value);
}

}  // namespace

Response error_response(const base::Error& error, const base::CorrelationId& correlation_id) {
  const base::ErrorInfo& row = base::info(error.code);
  std::optional<std::int64_t> retry_after_ms;
  std::optional<std::string> policy_label;
  json::object details;
  for (const auto& [name, value] : error.details) {
    if (name == "retry_after_ms" && std::holds_alternative<std::int64_t>(value)) {
      retry_after_ms = std::max<std::int64_t>(0, std::get<std::int64_t>(value));
    } else if (name == "policy_label" && std::holds_alternative<std::string>(value)) {
      policy_label = base::redact(std::get<std::string>(value));
    } else {
      details[name] = to_json(value);
    }
  }
  if (row.http_status == 429) {
    retry_after_ms = retry_after_ms.value_or(kDefaultRetryAfterMs);
    policy_label = policy_label.value_or(std::string(kDefaultPolicyLabel));
  }

  json::object body;
  body["code"] = row.name;
  body["message"] = base::redact(error.message);
  if (!details.empty()) body["details"] = std::move(details);
  body["retriable"] = row.retriable;
  if (retry_after_ms) body["retry_after_ms"] = *retry_after_ms;
  if (policy_label) body["policy_label"] = *policy_label;
  body["correlation_id"] = correlation_id.value;

  Response response = json_response(row.http_status, json::serialize(json::object{{"error", std::move(body)}}));
  if (retry_after_ms) {
    response.headers.set("Retry-After", std::to_string(std::max<std::int64_t>(1, (*retry_after_ms + 999) / 1000)));
    response.headers.set("X-Backoff-Ms", std::to_string(*retry_after_ms));
  }
  if (row.http_status == 401) response.headers.set("WWW-Authenticate", "Bearer");
  return response;
}

const Gateway* gateway_of(const std::vector<Gateway>& gateways, std::string_view target) {
  const auto it = std::ranges::find_if(gateways, [&](const Gateway& g) { return target.starts_with(g.prefix); });
  return it == gateways.end() ? nullptr : &*it;
}

namespace {

// The member `error` of a body; empty where it is none.
json::object envelope_of(const Response& response) {
  boost::system::error_code failed;
  json::value parsed = base::parse_json(response.body, failed);
  json::value* envelope = failed || !parsed.is_object() ? nullptr : parsed.get_object().if_contains("error");
  return envelope != nullptr && envelope->is_object() ? std::move(envelope->get_object()) : json::object();
}

base::Error error_in(const json::object& body, int status) {
  const json::value* name = body.if_contains("code");
  const json::value* message = body.if_contains("message");
  if (name == nullptr || !name->is_string()) {
    return {base::ErrorCode::kInternal, fmt::format("answered with HTTP status {} and no error body", status), {}};
  }

  const std::string_view code_name(name->get_string().data(), name->get_string().size());
  const std::string text = message != nullptr && message->is_string() ? std::string(message->get_string()) : "";
  const std::optional<base::ErrorCode> code = base::error_code_from_name(code_name);
  base::Error error{
      code.value_or(base::ErrorCode::kInternal), code ? text : fmt::format("{}: {}", code_name, text), {}};
  if (const json::value* details = body.if_contains("details"); details != nullptr && details->is_object()) {
    for (const auto& [key, value] : details->get_object()) error.details.emplace_back(key, to_detail(value));
  }
  for (const char* key : {"retry_after_ms", "policy_label"}) {
    if (const json::value* value = body.if_contains(key)) error.details.emplace_back(key, to_detail(*value));
  }
  return error;
}

}  // namespace

base::Error error_of(const Response& response) { return error_in(envelope_of(response), response.status); }

std::optional<base::Error> own_error_of(const Response& response) {
  const json::object body = envelope_of(response);
  if (!body.contains("correlation_id")) return std::nullopt;
  return error_in(body, response.status);
}

}  // namespace llorch::net::http
