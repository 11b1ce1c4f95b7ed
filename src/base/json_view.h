#pragma once
// Reading JSON of others: every access is checked, and what is not there is nothing.
#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/parse_json.h"

namespace llorch::base::json {

namespace bj = boost::json;

inline bj::value parsed(std::string_view text) {
  bj::error_code ec;
  bj::value value = parse_json(text, ec);
  return ec ? bj::value(nullptr) : value;
}
// Null: no object, or it has no such member.
inline const bj::value* member(const bj::value* value, std::string_view name) {
  if (value == nullptr || !value->is_object()) return nullptr;
  return value->get_object().if_contains(bj::string_view(name.data(), name.size()));
}
inline const bj::value* first(const bj::value* value) {
  return value != nullptr && value->is_array() && !value->get_array().empty() ? &value->get_array()[0] : nullptr;
}
inline std::optional<std::string> text_of(const bj::value* value) {
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}
inline std::optional<std::int64_t> number_of(const bj::value* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_int64()) return value->get_int64();
  if (value->is_uint64() && value->get_uint64() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return static_cast<std::int64_t>(value->get_uint64());
  }
  return std::nullopt;
}
inline bool is_true(const bj::value* value) { return value != nullptr && value->is_bool() && value->get_bool(); }

}  // namespace llorch::base::json
