#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "grammar/json_schema/schema_compiler.h"

namespace llorch::grammar::json_schema {
namespace {

namespace json = boost::json;

// Names outside of `patternProperties` patterns and within are told apart set by set, so their number doubles per pattern.
constexpr std::size_t kMemberPatternsMax = 6;
// Declared members times how many of them have been written: bounds of minProperties and maxProperties.
constexpr std::size_t kMemberStatesMax = 1 << 14;

// Joins pieces into one automaton over bytes and calls.
class Path {
 public:
  std::uint32_t add_state() { return nfa_.add_state(); }
  std::uint32_t literal(std::uint32_t from, std::string_view bytes) {
    for (const char c : bytes) {
      const std::uint32_t to = add_state();
      const ir::Symbol byte = static_cast<unsigned char>(c);
      nfa_.states[from].edges.push_back({byte, byte, to});
      from = to;
    }
    return from;
  }
  std::uint32_t call(std::uint32_t from, ir::RuleId rule) {
    const std::uint32_t to = add_state();
    nfa_.states[from].edges.push_back({ir::call_symbol(rule), ir::call_symbol(rule), to});
    return to;
  }
  void join(std::uint32_t from, std::uint32_t to) { nfa_.states[from].epsilons.push_back(to); }
  std::size_t size() const { return nfa_.states.size(); }
  ir::Nfa finish(std::uint32_t start, std::uint32_t accept) {
    nfa_.start = start;
    nfa_.accept = accept;
    return std::move(nfa_);
  }

 private:
  ir::Nfa nfa_;
};

bool has(const Schemas& schemas, std::string_view keyword) {
  return std::any_of(schemas.begin(), schemas.end(),
                     [&](Node schema) { return schema->get_object().contains(keyword); });
}

}  // namespace

base::Result<ir::ExprId> SchemaCompiler::array(const Schemas& schemas) {
  const ir::Bounds count = TRY(count_conditions(document_, schemas, "minItems", "maxItems"));
  if (count.min > count.max) return builder_.nothing();
  std::size_t listed = 0;
  bool has_items = false;
  for (const Node schema : schemas) {
    const json::array* prefix = TRY(document_.array(schema, "prefixItems"));
    if (prefix) listed = std::max(listed, prefix->size());
    const json::value* items = schema->get_object().if_contains("items");
    if (items && items->is_array())
      return document_.failure(schema, "items", "a list of schemas is written prefixItems");
    has_items |= items != nullptr;
    const json::value* unique = schema->get_object().if_contains("uniqueItems");
    if (unique && !unique->is_bool()) return document_.failure(schema, "uniqueItems", "it must be true or false");
    if (unique && unique->get_bool() && count.max > 1) {
      return document_.failure(schema, "uniqueItems",
                               "no grammar can tell that items differ; it is supported up to one item");
    }
  }
  const auto rule_at = [&](std::size_t i) -> base::Result<ir::RuleId> {
    TRY(builder_.spend(schemas.size()));
    std::vector<Node> all;
    for (const Node schema : schemas) {
      const json::value* prefix = schema->get_object().if_contains("prefixItems");
      const json::value* items = schema->get_object().if_contains("items");
      if (prefix && i < prefix->get_array().size()) {
        all.push_back(&prefix->get_array()[i]);
      } else if (items) {
        all.push_back(items);
      }
    }
    return rule_of(all);
  };
  Path path;
  const std::uint32_t start = path.add_state(), end = path.add_state();
  std::uint32_t at = path.call(path.literal(start, "["), space_);
  for (std::size_t i = 0; i < std::min<std::size_t>(listed, count.max); ++i) {
    if (i >= count.min) path.join(at, end);
    if (i > 0) at = path.call(path.literal(at, ","), space_);
    at = path.call(at, TRY(rule_at(i)));
  }
  // As for objects, what is listed without a word about the rest is all there is.
  const bool is_open = listed == 0 || has_items;
  if (!is_open || count.max <= listed) {
    if (count.min <= listed) path.join(at, end);
  } else {
    const ir::RuleId item = TRY(rule_at(listed)), more = builder_.declare("items of an array");
    const auto written = static_cast<std::uint32_t>(std::max<std::size_t>(listed, 1));
    ir::Bounds rest;
    rest.min = count.min - std::min(count.min, written);
    if (count.max != ir::kUnbounded) rest.max = count.max - written;
    const ir::ExprId next = builder_.sequence({builder_.literal(","), space(), builder_.call(item)});
    builder_.define(more, builder_.repeat(next, rest));
    if (listed == 0) {
      if (count.min == 0) path.join(at, end);
      at = path.call(at, item);
    } else if (count.min <= listed) {
      path.join(at, end);
    }
    path.join(path.call(at, more), end);
  }
  const std::uint32_t close = path.literal(path.call(end, space_), "]");
  return builder_.automaton(path.finish(start, close));
}

base::Result<std::vector<SchemaCompiler::Member>> SchemaCompiler::declared_members(const Schemas& schemas) {
  std::vector<Member> out;
  std::map<std::string, std::size_t, std::less<>> positions;
  const auto member = [&](std::string_view name) -> Member& {
    const auto [it, added] = positions.try_emplace(std::string(name), out.size());
    if (added) out.push_back({std::string(name), false, {}});
    return out[it->second];
  };
  for (const Node schema : schemas) {
    const json::object* properties = TRY(document_.object(schema, "properties"));
    if (!properties) continue;
    for (const auto& property : *properties) member(property.key());
  }
  for (const Node schema : schemas) {
    const json::array* required = TRY(document_.array(schema, "required"));
    if (!required) continue;
    for (const json::value& name : *required) {
      if (!name.is_string()) return document_.failure(schema, "required", "it must hold strings");
      member(std::string_view(name.get_string())).required = true;
    }
  }
  return out;
}

base::Result<> SchemaCompiler::add_schemas(const Schemas& schemas, const std::optional<ir::Dfa>& names,
                                           std::vector<Member>& members) {
  static const json::value kNever = false;
  for (Member& each : members) {
    for (const Node schema : schemas) {
      TRY(builder_.spend(1 + each.name.size()));
      const auto more = TRY(members_.schemas_of(schema, each.name));
      each.schemas.insert(each.schemas.end(), more.begin(), more.end());
    }
    if (names && !names->contains(ir::code_points(each.name))) each.schemas.push_back(&kNever);
  }
  return {};
}

base::Result<std::optional<ir::Dfa>> SchemaCompiler::names_language(const Schemas& schemas) {
  std::optional<ir::Dfa> out;
  for (const Node schema : schemas) {
    const json::value* names = schema->get_object().if_contains("propertyNames");
    if (!names) continue;
    std::optional<ir::Dfa> own = ir::Dfa{{{}}};
    for (const Schemas& each : TRY(alternatives({names}))) {
      own = TRY(combined(ir::unite, *own, TRY(string_language(each))));
      if (!own) return document_.failure(schema, "propertyNames", "it is too large");
    }
    out = out ? TRY(combined(ir::intersect, *out, *own)) : std::move(own);
    if (!out) return document_.failure(schema, "propertyNames", "it is too large");
  }
  return out;
}

base::Result<ir::ExprId> SchemaCompiler::quoted(std::optional<ir::Dfa> names) {
  if (!names) return builder_.call(any_string_);
  TRY(spend_on(*names));
  return builder_.sequence(
      {builder_.literal("\""), ir::spelled(builder_, *names, ir::Encoding::kJsonString), builder_.literal("\"")});
}

base::Result<std::vector<const MemberPattern*>> SchemaCompiler::member_patterns(const Schemas& schemas) {
  std::vector<const MemberPattern*> out;
  for (const Node schema : schemas) {
    for (const MemberPattern& each : TRY(members_.patterns_of(schema))) out.push_back(&each);
    if (out.size() <= kMemberPatternsMax) continue;
    return document_.failure(schemas.front(), "patternProperties",
                             fmt::format("more than {} patterns apply to one object", kMemberPatternsMax));
  }
  return out;
}

base::Result<std::optional<ir::ExprId>> SchemaCompiler::other_member(const Schemas& schemas,
                                                                     std::optional<ir::Dfa> names,
                                                                     const std::vector<Member>& declared) {
  const std::vector<const MemberPattern*> patterns = TRY(member_patterns(schemas));
  const bool is_refused = std::any_of(schemas.begin(), schemas.end(), [](Node schema) {
    const json::value* additional = schema->get_object().if_contains("additionalProperties");
    return additional && *additional == false;
  });
  const bool lists_members = has(schemas, "properties") || !patterns.empty();
  const bool is_closed = is_refused || (!has(schemas, "additionalProperties") && lists_members);
  if (is_closed && patterns.empty()) return std::nullopt;
  std::optional<ir::Dfa> allowed = std::move(names);
  if (!declared.empty() || !patterns.empty()) {
    if (!allowed) allowed = TRY(language_of(schemas.front(), StringConditions{}));
    ir::Nfa nfa;
    nfa.start = nfa.add_state();
    nfa.accept = nfa.add_state();
    for (const Member& each : declared) {
      std::uint32_t from = nfa.start;
      for (const ir::Symbol c : ir::code_points(each.name)) {
        const std::uint32_t to = nfa.add_state();
        nfa.states[from].edges.push_back({c, c, to});
        from = to;
      }
      nfa.states[from].epsilons.push_back(nfa.accept);
    }
    const auto taken = TRY(determinised(nfa));
    allowed = taken ? TRY(combined(ir::subtract, *allowed, *taken)) : std::nullopt;
    if (!allowed) return document_.failure(schemas.front(), "properties", "their names are too long together");
  }
  std::vector<ir::ExprId> branches;
  for (std::uint32_t matching = is_closed ? 1 : 0; matching < 1u << patterns.size(); ++matching) {
    if (allowed) TRY(spend_on(*allowed));
    std::optional<ir::Dfa> own = allowed;
    for (std::size_t i = 0; i < patterns.size() && own; ++i) {
      const bool matches = (matching >> i & 1) != 0;
      own = TRY(combined(matches ? ir::intersect : ir::subtract, *own, patterns[i]->names));
      if (!own) return document_.failure(schemas.front(), "patternProperties", "its patterns are too large together");
    }
    if (own && own->is_empty()) continue;
    TRY(builder_.spend(schemas.size()));
    std::vector<Node> all;
    for (const Node schema : schemas) {
      bool is_matched = false;
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        if (patterns[i]->owner != schema || (matching >> i & 1) == 0) continue;
        all.push_back(patterns[i]->schema);
        is_matched = true;
      }
      const json::value* additional = schema->get_object().if_contains("additionalProperties");
      if (!is_matched && additional) all.push_back(additional);
    }
    branches.push_back(builder_.sequence(
        {TRY(quoted(std::move(own))), builder_.literal(":"), space(), builder_.call(TRY(rule_of(all)))}));
  }
  if (branches.empty()) return std::nullopt;
  return builder_.choice(std::move(branches));
}

base::Result<std::uint32_t> SchemaCompiler::written_max(const Schemas& schemas, const ir::Bounds& count,
                                                        std::size_t members) {
  const std::uint32_t counted = count.max != ir::kUnbounded ? count.max : std::max(count.min, 1u);
  const auto out = static_cast<std::uint32_t>(std::min<std::size_t>(counted, members + 2));
  if ((members + 1) * (out + 1) <= kMemberStatesMax) return out;
  return document_.failure(schemas.front(), "minProperties", "the object has too many properties to count them");
}

base::Result<ir::ExprId> SchemaCompiler::object(const Schemas& schemas) {
  const ir::Bounds count = TRY(count_conditions(document_, schemas, "minProperties", "maxProperties"));
  if (count.min > count.max) return builder_.nothing();
  std::vector<Member> members = TRY(declared_members(schemas));
  // States: which member comes next, and how many have been written as far as the bounds care.
  const std::uint32_t written_max = TRY(this->written_max(schemas, count, members.size()));
  const std::optional<ir::Dfa> names = TRY(names_language(schemas));
  TRY(add_schemas(schemas, names, members));
  const std::optional<ir::ExprId> other = TRY(other_member(schemas, names, members));
  const auto after = [&](std::uint32_t written) {
    return count.max == ir::kUnbounded ? std::min(written + 1, written_max) : written + 1;
  };
  Path path;
  const std::uint32_t start = path.add_state(), end = path.add_state();
  std::vector<std::vector<std::uint32_t>> states(members.size() + 1);
  for (auto& row : states) {
    for (std::uint32_t written = 0; written <= written_max; ++written) row.push_back(path.add_state());
  }
  path.join(path.call(path.literal(start, "{"), space_), states[0][0]);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ir::RuleId value = TRY(rule_of(members[i].schemas));
    const std::string name = fmt::format("\"{}\":", ir::json_escape(members[i].name));
    for (std::uint32_t written = 0; written <= written_max; ++written) {
      std::uint32_t at = states[i][written];
      if (!members[i].required) path.join(at, states[i + 1][written]);
      if (after(written) > written_max) continue;
      if (path.size() + name.size() > limits().nfa_states_max) {
        return document_.failure(schemas.front(), "properties", "their names are too long together");
      }
      if (written > 0) at = path.call(path.literal(at, ","), space_);
      at = path.call(path.call(path.literal(at, name), space_), value);
      path.join(at, states[i + 1][after(written)]);
    }
  }
  std::optional<ir::RuleId> other_rule;
  if (other) {
    other_rule = builder_.declare("other members of an object");
    builder_.define(*other_rule, *other);
  }
  for (std::uint32_t written = 0; written <= written_max; ++written) {
    std::uint32_t at = states.back()[written];
    if (written >= count.min) path.join(at, end);
    // Names may repeat, which JSON reads as one member: only the first of them counts for sure.
    if (!other || written + 1 < count.min || written == count.max) continue;
    if (written > 0) at = path.call(path.literal(at, ","), space_);
    at = path.call(at, *other_rule);
    ir::Bounds rest;
    if (count.max != ir::kUnbounded) rest.max = count.max - written - 1;
    const ir::RuleId more = builder_.declare("other members of an object");
    builder_.define(
        more, builder_.repeat(builder_.sequence({builder_.literal(","), space(), builder_.call(*other_rule)}), rest));
    path.join(path.call(at, more), end);
  }
  const std::uint32_t close = path.literal(path.call(end, space_), "}");
  return builder_.automaton(path.finish(start, close));
}

}  // namespace llorch::grammar::json_schema
