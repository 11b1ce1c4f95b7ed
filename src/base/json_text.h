#pragma once
#include <string>
#include <string_view>

namespace llorch::base {

// Appends `text` as a JSON string, with its quotes. REQUIRES well-formed UTF-8; what is no control character, quote or
// backslash stays as it is. Allocates nothing but the growth of `out`.
void append_json_string(std::string& out, std::string_view text);

}  // namespace llorch::base
