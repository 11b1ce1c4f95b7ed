#pragma once
// The names a template finds without defining them: filters, tests, global functions, methods of Python's types.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/run/runtime.h"
#include "text/jinja/value/print.h"

namespace llorch::text::jinja {

// Tables sorted by name; null: no such name. A filter's `self` is its input.
const Builtin* find_filter(std::string_view name);
const Builtin* find_global(std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);
bool test_exists(std::string_view name);

// INVALID_PARAMS when this interpreter lacks it.
base::Result<Value> call_builtin(Runtime& run, const Builtin& builtin, const Value& self, CallArgs& arguments);

// Parts of the filter table, by file.
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> lazy_filters();
std::span<const Builtin> string_methods();

// For more than one file.
using Args = std::vector<Value>;
// The arguments of a method: between `required` and `allowed`, none by name; those that are not given are missing values.
base::Result<Args> positional(Runtime& run, CallArgs& arguments, std::size_t required, std::size_t allowed);
inline bool given(const Value& argument) { return !argument.is(Kind::kMissing); }
inline bool given_and_not_none(const Value& argument) { return given(argument) && !argument.is(Kind::kNone); }
base::Result<TextPtr> strip_text(Runtime& run, const Text& text, const Value& characters, bool left, bool right);
enum class Casing { kUpper, kLower, kCapitalize, kTitle, kJinjaTitle };
base::Result<Value> change_case(Runtime& run, const Text& text, Casing casing);
base::Result<Value> replace_text(Runtime& run, const Text& text, const Text& from, const Text& to, Int count_max);
base::Result<Value> join_texts(Runtime& run, const Text& separator, const Value& items, bool only_strings);
// Parts of a text, which cost steps and memory.
struct Piece {
  std::size_t begin, end;  // bytes
};
class Pieces {
 public:
  explicit Pieces(Runtime& run) : run_(run), held_(run.budget()) {}
  base::Result<> add(std::size_t begin, std::size_t end);

  std::vector<Piece> all;

 private:
  Runtime& run_;
  HeldMemory held_;
};
base::Result<> lines_of(Runtime& run, std::string_view text, bool keep_ends, Pieces& lines);
base::Result<Value> center_text(Runtime& run, const Text& text, Int width, std::string_view fill);

// "a.b.0" as what each part looks up; an integer is one part.
base::Result<std::vector<Value>> attribute_path(Runtime& run, const Value& attribute);
base::Result<Value> follow_path(Runtime& run, Value item, const std::vector<Value>& path,
                                const Value& default_value = Value::missing());
// Strings in lower case, the rest as it is.
base::Result<Value> ignore_case(Runtime& run, const Value& value);

}  // namespace llorch::text::jinja
