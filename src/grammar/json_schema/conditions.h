#pragma once
// What a set of schemas that must all hold says about a value, type by type.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/frontend/pattern.h"
#include "grammar/json_schema/document.h"

namespace llorch::grammar::json_schema {

// Bits of a set of types. Every integer is a number too.
enum Type : std::uint32_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8 | kInteger,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127,
};

// The object schemas among those that must hold; references and branches are members of their own.
using Schemas = std::vector<Node>;

// The types that `schemas` leave. Where none of them states a type and some condition applies to one type only, that type
// is meant.
base::Result<std::uint32_t> allowed_types(const Document& document, const Schemas& schemas);

struct StringConditions {
  ir::Bounds length;  // in code points
  std::vector<frontend::Pattern> patterns;
  bool is_empty = false;  // the bounds exclude each other
  std::string text;       // equal texts are equal conditions
};
base::Result<StringConditions> string_conditions(const Document& document, const Schemas& schemas,
                                                 const Limits& limits);

base::Result<NumberConditions> number_conditions(const Document& document, const Schemas& schemas);

// The tightest of two keywords over all schemas; min > max where they exclude each other.
base::Result<ir::Bounds> count_conditions(const Document& document, const Schemas& schemas,
                                          std::string_view min_keyword, std::string_view max_keyword);

// The `pattern` keyword or a pattern of `patternProperties`: `keyword` is for the message.
base::Result<frontend::Pattern> read_pattern(const Document& document, Node schema, std::string_view keyword,
                                             std::string_view expression, const Limits& limits);

}  // namespace llorch::grammar::json_schema
