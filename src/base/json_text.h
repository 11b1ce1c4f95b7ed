#pragma once
#include <cstddef>
#include <cstdint>
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

// The comparisons of a parser that keeps objects in hash tables, if all keys of an object collide: Boost.JSON's hash has no
// secret key, so whoever chooses the keys chooses which do. Of any text, JSON or not; linear.
std::uint64_t object_steps(std::string_view json);

// What one text may take, so that nobody waits for minutes: of a request half a second, or one object of 11,585 members; of a
// file of a model, whose lists of tokens are longer, some ten seconds.
inline constexpr std::uint64_t kObjectStepsMax = std::uint64_t{1} << 26, kObjectStepsOfFileMax = std::uint64_t{1} << 30;

}  // namespace llorch::base
