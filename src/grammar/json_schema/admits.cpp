#include "grammar/json_schema/admits.h"

#include <algorithm>
#include <utility>

#include "grammar/ir/code_points.h"
#include "grammar/json_schema/members.h"

namespace llorch::grammar::json_schema {
namespace {

namespace json = boost::json;

std::uint32_t type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return kNull;
    case json::kind::bool_: return kBoolean;
    case json::kind::string: return kString;
    case json::kind::array: return kArray;
    case json::kind::object: return kObject;
    default: return to_decimal(value).fraction.empty() ? std::uint32_t{kInteger} : kNumber & ~std::uint32_t{kInteger};
  }
}

bool has_twins(const json::array& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (is_equal(values[i], values[j])) return true;
    }
  }
  return false;
}

class Validator {
 public:
  Validator(const Document& document, const Limits& limits) : document_(document), limits_(limits) {}

  base::Result<bool> check(Node schema, const json::value& value) {
    if (schema->is_bool()) return schema->get_bool();
    TRY(document_.check(schema));
    if (++depth_ > limits_.depth_max) return document_.failure(schema, "$ref", "references are nested too deep");
    const bool valid = TRY(check_all(schema, value));
    --depth_;
    return valid;
  }

 private:
  base::Result<bool> check_all(Node schema, const json::value& value) {
    const json::object& keywords = schema->get_object();
    const bool has_type = keywords.contains("type");
    if (has_type && (TRY(allowed_types(document_, {schema})) & type_of(value)) == 0) return false;
    if (const json::value* only = keywords.if_contains("const"); only && !is_equal(*only, value)) return false;
    if (const json::array* values = TRY(document_.array(schema, "enum"))) {
      if (std::none_of(values->begin(), values->end(), [&](const auto& each) { return is_equal(each, value); }))
        return false;
    }
    if (!TRY(check_branches(schema, value))) return false;
    if (value.is_string()) return check_string(schema, value.get_string());
    if (value.is_number()) return check_number(schema, value);
    if (value.is_array()) return check_array(schema, value.get_array());
    if (value.is_object()) return check_object(schema, value.get_object());
    return true;
  }

  base::Result<bool> check_branches(Node schema, const json::value& value) {
    if (const auto reference = TRY(document_.string(schema, "$ref"))) {
      if (!TRY(check(TRY(document_.resolve(schema, *reference)), value))) return false;
    }
    if (const json::array* all = TRY(document_.array(schema, "allOf"))) {
      for (const json::value& each : *all) {
        if (!TRY(check(&each, value))) return false;
      }
    }
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      const json::array* branches = TRY(document_.array(schema, keyword));
      if (!branches) continue;
      bool any = false;
      for (const json::value& each : *branches) any = any || TRY(check(&each, value));
      if (!any) return false;
    }
    return true;
  }

  base::Result<bool> check_string(Node schema, std::string_view text) {
    const StringConditions conditions = TRY(string_conditions(document_, {schema}, limits_));
    const std::vector<ir::Symbol> word = ir::code_points(text);
    if (word.size() < conditions.length.min || word.size() > conditions.length.max) return false;
    for (const frontend::Pattern& pattern : conditions.patterns) {
      const auto dfa = frontend::to_dfa(pattern, kLanguageStatesMax);
      if (!dfa) return document_.failure(schema, "pattern", "it is too large to compare with an enum");
      if (!dfa->contains(word)) return false;
    }
    return true;
  }

  base::Result<bool> check_number(Node schema, const json::value& value) {
    const NumberConditions conditions = TRY(number_conditions(document_, {schema}));
    const Decimal number = to_decimal(value);
    if (conditions.min &&
        (is_less(number, conditions.min->value) || (conditions.min->exclusive && number == conditions.min->value))) {
      return false;
    }
    if (conditions.max &&
        (is_less(conditions.max->value, number) || (conditions.max->exclusive && number == conditions.max->value))) {
      return false;
    }
    if (!number.fraction.empty()) return conditions.multiple_of == 1;
    std::uint32_t rest = 0;
    for (const char digit : number.integer)
      rest = (rest * 10 + static_cast<std::uint32_t>(digit - '0')) % conditions.multiple_of;
    return rest == 0;
  }

  base::Result<bool> check_array(Node schema, const json::array& values) {
    const ir::Bounds count = TRY(count_conditions(document_, {schema}, "minItems", "maxItems"));
    if (values.size() < count.min || values.size() > count.max) return false;
    const json::value* unique = schema->get_object().if_contains("uniqueItems");
    if (unique && *unique == true && has_twins(values)) return false;
    const json::array* prefix = TRY(document_.array(schema, "prefixItems"));
    const json::value* rest = schema->get_object().if_contains("items");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Node item = prefix && i < prefix->size() ? &(*prefix)[i] : rest;
      if (item && !TRY(check(item, values[i]))) return false;
    }
    return true;
  }

  base::Result<bool> check_object(Node schema, const json::object& members) {
    const ir::Bounds count = TRY(count_conditions(document_, {schema}, "minProperties", "maxProperties"));
    if (members.size() < count.min || members.size() > count.max) return false;
    if (const json::array* required = TRY(document_.array(schema, "required"))) {
      for (const json::value& name : *required) {
        if (!name.is_string()) return document_.failure(schema, "required", "it must hold strings");
        if (!members.contains(name.get_string())) return false;
      }
    }
    for (const auto& member : members) {
      if (const json::value* names = schema->get_object().if_contains("propertyNames")) {
        if (!TRY(check(names, json::value(member.key())))) return false;
      }
      for (const Node each : TRY(schemas_of_member(document_, schema, member.key(), limits_))) {
        if (!TRY(check(each, member.value()))) return false;
      }
    }
    return true;
  }

  const Document& document_;
  const Limits& limits_;
  std::size_t depth_ = 0;
};

}  // namespace

base::Result<bool> admits(const Document& document, Node schema, const json::value& value, const Limits& limits) {
  return Validator(document, limits).check(schema, value);
}

bool is_equal(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return to_decimal(a) == to_decimal(b);
  if (a.kind() != b.kind()) return false;
  if (const json::array* array = a.if_array()) {
    return std::equal(array->begin(), array->end(), b.get_array().begin(), b.get_array().end(), is_equal);
  }
  if (const json::object* object = a.if_object()) {
    const json::object& other = b.get_object();
    return object->size() == other.size() && std::all_of(object->begin(), object->end(), [&](const auto& member) {
             const json::value* member_of_other = other.if_contains(member.key());
             return member_of_other && is_equal(member.value(), *member_of_other);
           });
  }
  return a == b;
}

}  // namespace llorch::grammar::json_schema
