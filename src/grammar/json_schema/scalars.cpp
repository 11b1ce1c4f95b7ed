#include <fmt/core.h>

#include <utility>

#include "grammar/json_schema/schema_compiler.h"

namespace llorch::grammar::json_schema {

namespace json = boost::json;

namespace {

std::string text_of(const NumberConditions& conditions, bool integer) {
  const auto bound = [](const std::optional<NumberConditions::Bound>& each) {
    return each ? fmt::format("{}{}", each->exclusive ? "<" : "<=", to_string(each->value)) : std::string();
  };
  return fmt::format("{} {} {} {}", integer, bound(conditions.min), bound(conditions.max), conditions.multiple_of);
}

}  // namespace

std::string to_json(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::string: return fmt::format("\"{}\"", ir::json_escape(std::string_view(value.get_string())));
    case json::kind::array: {
      std::string out;
      for (const json::value& each : value.get_array()) out += (out.empty() ? "" : ", ") + to_json(each);
      return '[' + out + ']';
    }
    case json::kind::object: {
      std::string out;
      for (const auto& member : value.get_object()) {
        out += fmt::format("{}\"{}\": {}", out.empty() ? "" : ", ", ir::json_escape(std::string_view(member.key())),
                           to_json(member.value()));
      }
      return '{' + out + '}';
    }
    default: return to_string(to_decimal(value));
  }
}

// The values of `enum` and `const` that every schema allows; nothing when there is neither.
base::Result<std::optional<std::vector<Node>>> SchemaCompiler::listed_values(const Schemas& schemas) {
  std::optional<std::vector<Node>> listed;
  for (const Node schema : schemas) {
    if (const json::value* only = schema->get_object().if_contains("const")) listed = {only};
    const json::array* values = TRY(document_.array(schema, "enum"));
    if (!values || listed) continue;
    listed.emplace();
    for (const json::value& each : *values) listed->push_back(&each);
  }
  if (!listed) return std::nullopt;
  std::vector<Node> out;
  for (const Node value : *listed) {
    bool valid = true;
    for (const Node schema : schemas) valid = valid && TRY(validator_.admits(schema, value));
    if (valid) out.push_back(value);
  }
  return out;
}

base::Result<> SchemaCompiler::spend_on(const ir::Dfa& language) {
  constexpr std::size_t kStepsPerState = 16;
  return builder_.spend(kStepsPerState * language.states.size());
}

base::Result<std::optional<ir::Dfa>> SchemaCompiler::combined(SetOperation& operation, const ir::Dfa& a,
                                                              const ir::Dfa& b) {
  ir::Work work = builder_.work();
  std::optional<ir::Dfa> out = operation(a, b, kLanguageStatesMax, &work);
  TRY(builder_.spend(work));
  return out;
}

base::Result<std::optional<ir::Dfa>> SchemaCompiler::determinised(const ir::Nfa& nfa) {
  ir::Work work = builder_.work();
  std::optional<ir::Dfa> out = ir::determinise(nfa, kLanguageStatesMax, &work);
  TRY(builder_.spend(work));
  return out;
}

base::Result<ir::ExprId> SchemaCompiler::number(const Schemas& schemas, bool integer) {
  const NumberConditions conditions = TRY(number_conditions(document_, schemas));
  if (conditions.is_empty()) return builder_.nothing();
  std::string key = text_of(conditions, integer);
  if (const auto known = number_exprs_.find(key); known != number_exprs_.end()) return known->second;
  ir::Work work = builder_.work();
  const auto dfa =
      integer ? integers(conditions, kLanguageStatesMax, &work) : numbers(conditions, kLanguageStatesMax, &work);
  TRY(builder_.spend(work));
  if (!dfa)
    return document_.failure(schemas.front(), "", "its numbers need too many states; use rounder bounds or multiples");
  return number_exprs_[std::move(key)] = builder_.automaton(ir::to_nfa(*dfa));
}

base::Result<ir::Dfa> SchemaCompiler::language_of(Node for_messages, const StringConditions& conditions) {
  if (conditions.is_empty) return ir::Dfa{{{}}};
  frontend::Pattern length{.kind = frontend::Pattern::Kind::kRepeat, .bounds = conditions.length};
  length.children.push_back({.kind = frontend::Pattern::Kind::kSet, .set = ir::all_code_points()});
  std::optional<ir::Dfa> out = TRY(language_of_pattern(builder_, length));
  for (const frontend::Pattern& pattern : conditions.patterns) {
    const std::optional<ir::Dfa> other = TRY(language_of_pattern(builder_, pattern));
    out = out && other ? TRY(combined(ir::intersect, *out, *other)) : std::nullopt;
  }
  if (out) return std::move(*out);
  return document_.failure(
      for_messages, "", fmt::format("its length and patterns need more than {} states together", kLanguageStatesMax));
}

base::Result<ir::Dfa> SchemaCompiler::string_language(const Schemas& schemas) {
  if (const auto values = TRY(listed_values(schemas))) {
    ir::Nfa nfa;
    nfa.start = nfa.add_state();
    nfa.accept = nfa.add_state();
    for (const Node value : *values) {
      if (!value->is_string()) continue;
      std::uint32_t from = nfa.start;
      for (const ir::Symbol c : ir::code_points(std::string_view(value->get_string()))) {
        const std::uint32_t to = nfa.add_state();
        nfa.states[from].edges.push_back({c, c, to});
        from = to;
      }
      nfa.states[from].epsilons.push_back(nfa.accept);
    }
    auto dfa = TRY(determinised(nfa));
    if (dfa) return std::move(*dfa);
    return document_.failure(schemas.front(), "enum", "it is too large");
  }
  if ((TRY(allowed_types(document_, schemas)) & kString) == 0) return ir::Dfa{{{}}};
  return language_of(schemas.empty() ? document_.root() : schemas.front(),
                     TRY(string_conditions(document_, schemas, limits())));
}

base::Result<ir::ExprId> SchemaCompiler::string(const Schemas& schemas) {
  const StringConditions conditions = TRY(string_conditions(document_, schemas, limits()));
  if (conditions.is_empty) return builder_.nothing();
  const bool any_length = conditions.length.min == 0 && conditions.length.max == ir::kUnbounded;
  if (conditions.patterns.empty() && any_length) return builder_.call(any_string_);
  ir::ExprId inside{};
  if (conditions.patterns.empty()) {
    inside = builder_.repeat(builder_.call(character_), conditions.length);
  } else if (conditions.patterns.size() == 1 && any_length) {
    inside = frontend::to_expr(builder_, conditions.patterns.front(), ir::Encoding::kJsonString);
  } else {
    const auto [known, added] = string_exprs_.try_emplace(conditions.text);
    if (added) {
      const ir::Dfa language = TRY(language_of(schemas.front(), conditions));
      TRY(spend_on(language));
      known->second = ir::spelled(builder_, language, ir::Encoding::kJsonString);
    }
    inside = known->second;
  }
  return builder_.sequence({builder_.literal("\""), inside, builder_.literal("\"")});
}

}  // namespace llorch::grammar::json_schema
