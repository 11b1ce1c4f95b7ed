#pragma once
// Values to text: str(), repr(), json.dumps(), the % operator. Every byte keeps the origin of the value it shows.
#include <optional>
#include <string>

#include "text/jinja/value/value.h"

namespace llorch::text::jinja {

// str(value) and repr(value). INVALID_PARAMS: a value that Python shows as a memory address.
base::Result<> print(Runtime& run, const Value& value, TextBuilder& out);
base::Result<> print_repr(Runtime& run, const Value& value, TextBuilder& out);
base::Result<TextPtr> to_text(Runtime& run, const Value& value);

struct JsonOptions {
  bool ascii_only = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps. INVALID_PARAMS: a value that JSON has no form for.
base::Result<> print_json(Runtime& run, const Value& value, const JsonOptions& options, TextBuilder& out);

// format % arguments; `arguments` is a tuple, a dict or one value. Supports s r d i u f F e E g G x X o c %.
base::Result<Value> format_percent(Runtime& run, const Text& format, const Value& arguments);

}  // namespace llorch::text::jinja
