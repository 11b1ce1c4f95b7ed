#include "net/http/message.h"

#include <algorithm>

#include "base/assert.h"
#include "base/entropy.h"

namespace llorch::net::http {
namespace {
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }
}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> Headers::get(std::string_view name) const {
  for (const auto& [field, value] : fields_) {
    if (equals_ignoring_case(field, name)) return value;
  }
  return std::nullopt;
}

std::size_t Headers::count(std::string_view name) const {
  return static_cast<std::size_t>(std::count_if(
      fields_.begin(), fields_.end(), [&](const Field& field) { return equals_ignoring_case(field.first, name); }));
}

void Headers::set(std::string_view name, std::string value) {
  std::erase_if(fields_, [&](const Field& field) { return equals_ignoring_case(field.first, name); });
  fields_.emplace_back(std::string(name), std::move(value));
}

const std::string& Request::path_param(std::string_view name) const {
  const auto found = path_params.find(name);
  ASSERT(found != path_params.end(), "the route has no parameter {}", name);
  return found->second;
}

std::optional<std::string_view> Request::query_param(std::string_view name) const {
  const auto found = query_params.find(name);
  if (found == query_params.end()) return std::nullopt;
  return found->second;
}

Response json_response(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

Response text_response(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body)};
}

Headers sse_headers() {
  return {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

base::CorrelationId correlation_id_or_new(std::optional<std::string_view> given, base::Entropy& entropy) {
  if (given && base::is_valid_identifier(*given, 64)) return base::CorrelationId(std::string(*given));
  return base::CorrelationId(base::uuid_v4(entropy));
}

}  // namespace llorch::net::http
