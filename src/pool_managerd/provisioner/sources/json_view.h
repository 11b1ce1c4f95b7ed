#pragma once
// Reads JSON of servers that may send anything.
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::pool_managerd::provisioner::sources {

inline base::Result<boost::json::value> parse_answer(std::string_view text) {
  boost::json::error_code ec;
  auto value = boost::json::parse(boost::json::string_view(text.data(), text.size()), ec);
  if (ec) return base::fail(base::ErrorCode::kUntrustedArtifact, "the server answers with something that is no JSON");
  return value;
}

// The member of an object; null where there is none.
inline const boost::json::value* member(const boost::json::value& value, std::string_view name) {
  const auto* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(boost::json::string_view(name.data(), name.size()));
}
inline std::string text_of(const boost::json::value& value, std::string_view name) {
  const auto* found = member(value, name);
  const auto* text = found == nullptr ? nullptr : found->if_string();
  return text == nullptr ? std::string() : std::string(text->data(), text->size());
}
inline std::optional<std::int64_t> number_of(const boost::json::value& value, std::string_view name) {
  const auto* found = member(value, name);
  const auto* number = found == nullptr ? nullptr : found->if_int64();
  if (number == nullptr || *number < 0) return std::nullopt;
  return *number;
}
inline bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace llorch::pool_managerd::provisioner::sources
