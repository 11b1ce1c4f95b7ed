#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"

namespace llorch::base {

// Whether `error.details` holds `text` under `key`, as in `reason: MODEL_LOADING`.
inline bool has_detail(const Error& error, std::string_view key, std::string_view text) {
  return std::ranges::any_of(error.details, [&](const auto& detail) {
    const auto* value = std::get_if<std::string>(&detail.second);
    return detail.first == key && value != nullptr && *value == text;
  });
}

inline bool has_detail(const Error& error, std::string_view key) {
  return std::ranges::any_of(error.details, [&](const auto& detail) { return detail.first == key; });
}

// The whole number that `error.details` holds under `key`; absent: there is none.
inline std::optional<std::int64_t> number_detail(const Error& error, std::string_view key) {
  for (const auto& [name, value] : error.details) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (name == key && number != nullptr) return *number;
  }
  return std::nullopt;
}

}  // namespace llorch::base
