#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace llorch::base {

// Appends `text` as a JSON string, with its quotes. REQUIRES well-formed UTF-8; what is no control character, quote or
// backslash stays as it is. Allocates nothing but the growth of `out`.
void append_json_string(std::string& out, std::string_view text);

// Behind the string whose quote stands at `at`; json.size() where it has no end.
std::size_t json_string_end(std::string_view json, std::size_t at);

// Behind the object that `json` begins with; json.size() where it has no end. REQUIRES that `json` begins with a brace.
std::size_t json_object_end(std::string_view json);

// True where a parser that keeps objects in hash tables could take minutes for what one request holds: Boost.JSON's hash
// has no secret key, so whoever chooses the keys chooses which of them collide, and n members that do take n * n / 2
// comparisons. Of any text, JSON or not; linear.
bool has_costly_objects(std::string_view json);

}  // namespace llorch::base
