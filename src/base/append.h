#pragma once
#include <fmt/core.h>

#include <string>
#include <utility>

namespace llorch::base {

void append_formatted(std::string& out, fmt::string_view format, fmt::format_args arguments);

// fmt::format_to() at the end of `out`, without what it compiles in each unit: the conversions are compiled once. Allocates
// what `out` needs, and nothing for texts of up to 500 bytes besides.
template <class... Arguments>
void append(std::string& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  append_formatted(out, format, fmt::make_format_args(arguments...));
}

}  // namespace llorch::base
