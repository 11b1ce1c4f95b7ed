#include "grammar/json_schema/admits.h"

#include <algorithm>

#include "grammar/ir/code_points.h"

namespace llorch::grammar::json_schema {
namespace {

namespace json = boost::json;

// A verdict looks for a score of keywords and is kept: more than finding one that is known.
constexpr std::size_t kStepsPerVerdict = 8;

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

}  // namespace

base::Result<bool> Validator::admits(Node schema, Node value) {
  TRY(builder_.spend(1));
  if (schema->is_bool()) return schema->get_bool();
  const auto known = verdicts_.find({schema, value});
  if (known != verdicts_.end()) return known->second;
  TRY(builder_.spend(kStepsPerVerdict));
  Facts* const facts = TRY(facts_of(schema));
  if (++depth_ > builder_.limits().depth_max) {
    return document_.failure(schema, "$ref", "references are nested too deep");
  }
  const bool valid = TRY(check_all(schema, *facts, value));
  --depth_;
  verdicts_.emplace(Question{schema, value}, valid);
  return valid;
}

base::Result<Validator::Facts*> Validator::facts_of(Node schema) {
  const auto known = facts_.find(schema);
  if (known != facts_.end()) return &known->second;
  TRY(document_.check(schema));
  return &facts_[schema];
}

base::Result<bool> Validator::check_all(Node schema, Facts& facts, Node value) {
  const json::object& keywords = schema->get_object();
  if (value->is_null() && TRY(document_.flag(schema, "nullable"))) return true;
  if (!facts.types) facts.types = keywords.contains("type") ? TRY(allowed_types(document_, {schema})) : kAnyType;
  if ((*facts.types & type_of(*value)) == 0) return false;
  const json::value* only = keywords.if_contains("const");
  if (only && numbers_.of(only) != numbers_.of(value)) return false;
  if (!TRY(check_listed(schema, facts, value))) return false;
  if (!TRY(check_branches(schema, value))) return false;
  if (value->is_string()) return check_string(schema, facts, value->get_string());
  if (value->is_number()) return check_number(schema, facts, *value);
  if (value->is_array()) return check_array(schema, value->get_array());
  if (value->is_object()) return check_object(schema, value->get_object());
  return true;
}

base::Result<bool> Validator::check_listed(Node schema, Facts& facts, Node value) {
  const json::array* values = TRY(document_.array(schema, "enum"));
  if (!values) return true;
  if (!facts.listed) {
    facts.listed.emplace();
    for (const json::value& each : *values) facts.listed->insert(numbers_.of(&each));
  }
  return facts.listed->contains(numbers_.of(value));
}

base::Result<bool> Validator::check_branches(Node schema, Node value) {
  if (const auto reference = TRY(document_.string(schema, "$ref"))) {
    TRY(builder_.spend(reference->size()));
    if (!TRY(admits(TRY(document_.resolve(schema, *reference)), value))) return false;
  }
  if (const json::array* all = TRY(document_.array(schema, "allOf"))) {
    for (const json::value& each : *all) {
      if (!TRY(admits(&each, value))) return false;
    }
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    const json::array* branches = TRY(document_.array(schema, keyword));
    if (!branches) continue;
    bool any = false;
    for (const json::value& each : *branches) {
      any = TRY(admits(&each, value));
      if (any) break;
    }
    if (!any) return false;
  }
  return true;
}

base::Result<bool> Validator::check_string(Node schema, Facts& facts, std::string_view text) {
  if (!facts.string) facts.string = TRY(string_conditions(document_, {schema}, builder_.limits()));
  const StringConditions& conditions = *facts.string;
  const bool any_length = conditions.length.min == 0 && conditions.length.max == ir::kUnbounded;
  if (any_length && conditions.patterns.empty()) return true;
  TRY(builder_.spend(text.size()));
  const std::vector<ir::Symbol> word = ir::code_points(text);
  if (word.size() < conditions.length.min || word.size() > conditions.length.max) return false;
  for (std::size_t i = 0; i < conditions.patterns.size(); ++i) {
    if (i == facts.languages.size()) {
      auto language = TRY(language_of_pattern(builder_, conditions.patterns[i]));
      if (!language) return document_.failure(schema, "pattern", "it is too large to compare with an enum");
      facts.languages.push_back(std::move(*language));
    }
    TRY(builder_.spend(word.size()));
    if (!facts.languages[i].contains(word)) return false;
  }
  return true;
}

base::Result<bool> Validator::check_number(Node schema, Facts& facts, const json::value& value) {
  if (!facts.number) facts.number = TRY(number_conditions(document_, {schema}));
  const NumberConditions& conditions = *facts.number;
  if (!conditions.min && !conditions.max && conditions.multiple_of == 1) return true;
  const Decimal number = to_decimal(value);
  TRY(builder_.spend(number.integer.size() + number.fraction.size()));
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

bool Validator::has_twins(const json::array& values) {
  std::unordered_set<std::uint32_t> seen;
  return !std::all_of(values.begin(), values.end(),
                      [&](const json::value& each) { return seen.insert(numbers_.of(&each)).second; });
}

base::Result<bool> Validator::check_array(Node schema, const json::array& values) {
  const ir::Bounds count = TRY(count_conditions(document_, {schema}, "minItems", "maxItems"));
  if (values.size() < count.min || values.size() > count.max) return false;
  TRY(builder_.spend(values.size()));
  const json::value* unique = schema->get_object().if_contains("uniqueItems");
  if (unique && *unique == true && has_twins(values)) return false;
  const json::array* prefix = TRY(document_.array(schema, "prefixItems"));
  const json::value* rest = schema->get_object().if_contains("items");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Node item = prefix && i < prefix->size() ? &(*prefix)[i] : rest;
    if (item && !TRY(admits(item, &values[i]))) return false;
  }
  return true;
}

base::Result<bool> Validator::check_object(Node schema, const json::object& members) {
  const ir::Bounds count = TRY(count_conditions(document_, {schema}, "minProperties", "maxProperties"));
  if (members.size() < count.min || members.size() > count.max) return false;
  if (const json::array* required = TRY(document_.array(schema, "required"))) {
    for (const json::value& name : *required) {
      if (!name.is_string()) return document_.failure(schema, "required", "it must hold strings");
      TRY(builder_.spend(1 + name.get_string().size()));
      if (!members.contains(name.get_string())) return false;
    }
  }
  for (const auto& member : members) {
    TRY(builder_.spend(1 + member.key().size()));
    if (const json::value* names = schema->get_object().if_contains("propertyNames")) {
      const json::value& name = names_.try_emplace(std::string(member.key()), member.key()).first->second;
      if (!TRY(admits(names, &name))) return false;
    }
    for (const Node each : TRY(members_.schemas_of(schema, member.key()))) {
      if (!TRY(admits(each, &member.value()))) return false;
    }
  }
  return true;
}

}  // namespace llorch::grammar::json_schema
