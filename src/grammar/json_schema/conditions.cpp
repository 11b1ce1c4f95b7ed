#include "grammar/json_schema/conditions.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "grammar/json_schema/formats.h"

namespace llorch::grammar::json_schema {
namespace {

namespace json = boost::json;

// Automata of multiples have a state per remainder.
constexpr std::uint32_t kMultipleMax = 4096;

struct NamedType {
  std::string_view name;
  std::uint32_t type;
};
constexpr auto kTypes = std::to_array<NamedType>({
    {"null", kNull},
    {"boolean", kBoolean},
    {"integer", kInteger},
    {"number", kNumber},
    {"string", kString},
    {"array", kArray},
    {"object", kObject},
});

constexpr auto kTypeOfKeyword = std::to_array<NamedType>({
    {"additionalProperties", kObject},
    {"exclusiveMaximum", kNumber},
    {"exclusiveMinimum", kNumber},
    {"items", kArray},
    {"maxItems", kArray},
    {"maxLength", kString},
    {"maxProperties", kObject},
    {"maximum", kNumber},
    {"minItems", kArray},
    {"minLength", kString},
    {"minProperties", kObject},
    {"minimum", kNumber},
    {"multipleOf", kNumber},
    {"pattern", kString},
    {"patternProperties", kObject},
    {"prefixItems", kArray},
    {"properties", kObject},
    {"propertyNames", kObject},
    {"required", kObject},
    {"uniqueItems", kArray},
});

base::Result<std::uint32_t> named_type(const Document& document, Node schema, const json::value& name) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& type) {
    return name.is_string() && type.name == std::string_view(name.get_string());
  });
  if (it == kTypes.end()) {
    return document.failure(schema, "type", "a type is one of null, boolean, integer, number, string, array, object");
  }
  return it->type;
}

base::Result<std::uint32_t> stated_types(const Document& document, Node schema, const json::value& stated) {
  if (!stated.is_array()) return named_type(document, schema, stated);
  std::uint32_t types = 0;
  for (const json::value& name : stated.get_array()) types |= TRY(named_type(document, schema, name));
  return types;
}

void tighten_min(std::optional<NumberConditions::Bound>& bound, const NumberConditions::Bound& other) {
  if (!bound || is_less(bound->value, other.value)) {
    bound = other;
  } else if (bound->value == other.value) {
    bound->exclusive |= other.exclusive;
  }
}

void tighten_max(std::optional<NumberConditions::Bound>& bound, const NumberConditions::Bound& other) {
  if (!bound || is_less(other.value, bound->value)) {
    bound = other;
  } else if (bound->value == other.value) {
    bound->exclusive |= other.exclusive;
  }
}

base::Result<std::uint32_t> multiple_of(const Document& document, Node schema, std::uint32_t so_far) {
  const auto step = TRY(document.number(schema, "multipleOf"));
  if (!step) return so_far;
  const bool is_small = step->fraction.empty() && !step->negative && step->integer != "0" && step->integer.size() <= 4;
  const std::uint32_t both = is_small ? std::lcm(so_far, static_cast<std::uint32_t>(std::stoul(step->integer))) : 0;
  if (both == 0 || both > kMultipleMax) {
    return document.failure(
        schema, "multipleOf",
        fmt::format("only whole numbers are supported, whose common multiple is at most {}", kMultipleMax));
  }
  return both;
}

}  // namespace

base::Result<std::uint32_t> allowed_types(const Document& document, const Schemas& schemas) {
  std::uint32_t types = kAnyType, implied = 0;
  bool is_stated = false;
  for (const Node schema : schemas) {
    const json::object& keywords = schema->get_object();
    if (const json::value* stated = keywords.if_contains("type")) {
      types &= TRY(stated_types(document, schema, *stated));
      is_stated = true;
    }
    for (const auto& [keyword, type] : kTypeOfKeyword) {
      if (keywords.contains(keyword)) implied |= type;
    }
    const auto format = TRY(document.string(schema, "format"));
    if (format && format_pattern(*format)) implied |= kString;
  }
  return is_stated || implied == 0 ? types : implied;
}

base::Result<ir::Bounds> count_conditions(const Document& document, const Schemas& schemas,
                                          std::string_view min_keyword, std::string_view max_keyword) {
  ir::Bounds out;
  for (const Node schema : schemas) {
    out.min = std::max(out.min, TRY(document.count(schema, min_keyword)).value_or(0));
    out.max = std::min(out.max, TRY(document.count(schema, max_keyword)).value_or(ir::kUnbounded));
  }
  return out;
}

base::Result<frontend::Pattern> read_pattern(const Document& document, Node schema, std::string_view keyword,
                                             std::string_view expression, const Limits& limits) {
  auto pattern = frontend::parse_pattern(expression, frontend::Match::kSearch, limits);
  if (!pattern) return document.failure(schema, keyword, pattern.error().message);
  return pattern;
}

base::Result<StringConditions> string_conditions(const Document& document, const Schemas& schemas,
                                                 const Limits& limits) {
  StringConditions out;
  out.length = TRY(count_conditions(document, schemas, "minLength", "maxLength"));
  out.is_empty = out.length.min > out.length.max;
  out.text = fmt::format("{} {}", out.length.min, out.length.max);
  for (const Node schema : schemas) {
    if (const auto expression = TRY(document.string(schema, "pattern"))) {
      out.patterns.push_back(TRY(read_pattern(document, schema, "pattern", *expression, limits)));
      out.text += fmt::format(" {} {}", expression->size(), *expression);
    }
    if (const auto name = TRY(document.string(schema, "format"))) {
      const auto expression = format_pattern(*name);
      if (!expression) continue;  // an annotation
      out.patterns.push_back(TRY(read_pattern(document, schema, "format", *expression, limits)));
      out.text += fmt::format(" {} {}", expression->size(), *expression);
    }
  }
  return out;
}

base::Result<NumberConditions> number_conditions(const Document& document, const Schemas& schemas) {
  NumberConditions out;
  for (const Node schema : schemas) {
    for (const bool exclusive : {false, true}) {
      const auto min = TRY(document.number(schema, exclusive ? "exclusiveMinimum" : "minimum"));
      const auto max = TRY(document.number(schema, exclusive ? "exclusiveMaximum" : "maximum"));
      if (min) tighten_min(out.min, {*min, exclusive});
      if (max) tighten_max(out.max, {*max, exclusive});
    }
    out.multiple_of = TRY(multiple_of(document, schema, out.multiple_of));
  }
  return out;
}

}  // namespace llorch::grammar::json_schema
