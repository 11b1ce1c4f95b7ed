#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace llorch::grammar::json_schema {

// An anchored regular expression whose every match is valid in the format; nothing for an unknown format.
std::optional<std::string> format_pattern(std::string_view name);

}  // namespace llorch::grammar::json_schema
