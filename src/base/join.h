#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace llorch::base {

// The items as text, `separator` between them. fmt::join() compiles a formatter of its own in each unit.
template <class Items>
std::string join(const Items& items, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += separator;
    first = false;
    if constexpr (std::is_convertible_v<decltype(item), std::string_view>) {
      out += item;
    } else {
      out += fmt::format("{}", item);
    }
  }
  return out;
}

}  // namespace llorch::base
