#pragma once
// The JSON that a source describes itself with.
#include "base/json_view.h"
#include "base/result.h"

namespace llorch::pool_managerd::provisioner::sources {

using base::json::member;

inline base::Result<boost::json::value> parse_answer(std::string_view text) {
  boost::json::error_code ec;
  auto value = base::parse_json(text, ec);
  if (ec) return base::fail(base::ErrorCode::kUntrustedArtifact, "the server answers with something that is no JSON");
  return value;
}

// Of the member of an object; empty where it is none, or no text.
inline std::string text_of(const boost::json::value* value, std::string_view name) {
  return base::json::text_of(member(value, name)).value_or("");
}
inline std::optional<std::int64_t> size_of(const boost::json::value& value) {
  const auto number = base::json::number_of(member(&value, "size"));
  return number && *number >= 0 ? number : std::nullopt;
}
inline bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace llorch::pool_managerd::provisioner::sources
