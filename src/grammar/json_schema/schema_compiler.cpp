#include "grammar/json_schema/schema_compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::grammar::json_schema {

namespace json = boost::json;

namespace {

// What reading the keywords of `schema` once takes, about; its sub-schemas apart.
std::size_t steps_of(Node schema) {
  constexpr std::size_t kLookups = 8;
  const json::object& keywords = schema->get_object();
  std::size_t steps = kLookups + keywords.size();
  for (const std::string_view keyword : {"enum", "prefixItems", "required", "type"}) {
    const json::value* value = keywords.if_contains(keyword);
    if (value && value->is_array()) steps += value->get_array().size();
  }
  for (const std::string_view keyword : {"patternProperties", "properties"}) {
    const json::value* value = keywords.if_contains(keyword);
    if (value && value->is_object()) steps += value->get_object().size();
  }
  const json::value* pattern = keywords.if_contains("pattern");
  return steps + (pattern && pattern->is_string() ? pattern->get_string().size() : 0);
}

}  // namespace

SchemaCompiler::SchemaCompiler(const Document& document, ir::Builder& builder)
    : document_(document), builder_(builder), members_(document, builder), validator_(document, builder, members_) {
  // One blank, or a line break and its indentation: what models write, and nothing they could go on with for ever.
  constexpr std::uint32_t kIndentMax = 32;
  space_ = builder_.declare("white space");
  builder_.define(space_,
                  builder_.choice({builder_.empty(), builder_.literal(" "),
                                   builder_.sequence({builder_.literal("\n"),
                                                      builder_.repeat(builder_.literal(" "), {0, kIndentMax})})}));
  character_ = builder_.declare("a character of a string");
  builder_.define(character_, ir::any_json_character(builder_));
  any_string_ = builder_.declare("a string");
  builder_.define(any_string_,
                  builder_.sequence({builder_.literal("\""), builder_.repeat(ir::any_json_character(builder_), {}),
                                     builder_.literal("\"")}));
}

base::Result<ir::RuleId> SchemaCompiler::compile() {
  const ir::RuleId root = TRY(rule_of({document_.root()}));
  for (std::size_t at = 0; at < work_.size(); ++at) {
    const auto [rule, all] = work_[at];
    builder_.define(rule, TRY(value(all)));
    TRY(builder_.check());
  }
  return root;
}

base::Result<ir::RuleId> SchemaCompiler::rule_of(const std::vector<Node>& all) {
  TRY(builder_.spend(1 + all.size()));
  std::vector<std::uint32_t> key;
  for (const Node node : all) {
    if (node->is_bool() && node->get_bool()) continue;
    const auto [it, added] = numbers_.try_emplace(node, static_cast<std::uint32_t>(nodes_.size()));
    if (added) nodes_.push_back(node);
    key.push_back(it->second);
  }
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [it, added] = rules_.try_emplace(key);
  if (added) {
    it->second = builder_.declare("the JSON schema");
    std::vector<Node> members;
    for (const std::uint32_t number : key) members.push_back(nodes_[number]);
    work_.emplace_back(it->second, std::move(members));
  }
  return it->second;
}

base::Result<> SchemaCompiler::expand(Node node, std::vector<Node>& ancestors, Expansion& into) {
  TRY(builder_.spend(1 + (node->is_object() ? node->get_object().size() : 0)));
  TRY(document_.check(node));
  if (node->is_bool()) {
    into.is_impossible |= !node->get_bool();
    return {};
  }
  if (std::find(ancestors.begin(), ancestors.end(), node) != ancestors.end()) {
    return document_.failure(node, "", "it refers to itself without anything in between");
  }
  if (ancestors.size() >= limits().depth_max) {
    return document_.failure(node, "", fmt::format("references are nested more than {} deep", limits().depth_max));
  }
  if (into.seen.contains(node)) return {};
  if (TRY(document_.flag(node, "nullable"))) {
    into.choices.push_back({nullptr, node, ancestors});
    return {};
  }
  return expand_keywords(node, ancestors, into);
}

base::Result<> SchemaCompiler::expand_keywords(Node node, std::vector<Node>& ancestors, Expansion& into) {
  if (!into.seen.insert(node).second) return {};
  into.schemas.push_back(node);
  ancestors.push_back(node);
  if (const auto reference = TRY(document_.string(node, "$ref"))) {
    TRY(builder_.spend(reference->size()));
    TRY(expand(TRY(document_.resolve(node, *reference)), ancestors, into));
  }
  if (const json::array* all = TRY(document_.array(node, "allOf"))) {
    for (const json::value& each : *all) TRY(expand(&each, ancestors, into));
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    const json::array* branches = TRY(document_.array(node, keyword));
    if (!branches) continue;
    into.choices.push_back({branches, nullptr, ancestors});
  }
  ancestors.pop_back();
  return {};
}

void SchemaCompiler::Expansion::shrink(std::size_t schemas_count, std::size_t choices_count) {
  for (; schemas.size() > schemas_count; schemas.pop_back()) seen.erase(schemas.back());
  while (choices.size() > choices_count) choices.pop_back();
}

base::Result<> SchemaCompiler::choose(Expansion& expansion, std::vector<Schemas>& out, std::size_t& tried) {
  if (++tried > limits().alternatives_max) {
    return document_.failure(expansion.schemas.empty() ? document_.root() : expansion.schemas.front(), "",
                             fmt::format("its branches combine in more than {} ways", limits().alternatives_max));
  }
  if (expansion.is_impossible) return {};
  if (expansion.choices.empty()) {
    for (const Node schema : expansion.schemas) TRY(builder_.spend(steps_of(schema)));
    out.push_back(expansion.schemas);
    return {};
  }
  Choice choice = std::move(expansion.choices.back());
  expansion.choices.pop_back();
  const std::size_t schemas_count = expansion.schemas.size(), choices_count = expansion.choices.size();
  const auto choose_from_here = [&]() -> base::Result<> {
    TRY(choose(expansion, out, tried));
    expansion.shrink(schemas_count, choices_count);
    expansion.is_impossible = false;
    return {};
  };
  if (choice.nullable != nullptr) {
    static const json::value kOnlyNull(json::object{{"type", "null"}});
    std::vector<Node> ancestors = choice.ancestors;
    TRY(expand_keywords(choice.nullable, ancestors, expansion));
    TRY(choose_from_here());
    TRY(expand(&kOnlyNull, ancestors, expansion));
    TRY(choose_from_here());
  } else {
    for (const json::value& branch : *choice.branches) {
      std::vector<Node> ancestors = choice.ancestors;
      TRY(expand(&branch, ancestors, expansion));
      TRY(choose_from_here());
    }
  }
  expansion.choices.push_back(std::move(choice));
  return {};
}

base::Result<std::vector<Schemas>> SchemaCompiler::alternatives(const std::vector<Node>& all) {
  Expansion expansion;
  for (const Node node : all) {
    std::vector<Node> ancestors;
    TRY(expand(node, ancestors, expansion));
  }
  std::vector<Schemas> out;
  std::size_t tried = 0;
  TRY(choose(expansion, out, tried));
  return out;
}

base::Result<ir::ExprId> SchemaCompiler::value(const std::vector<Node>& all) {
  std::vector<ir::ExprId> branches;
  for (const Schemas& schemas : TRY(alternatives(all))) {
    branches.push_back(TRY(value_of(schemas)));
    TRY(builder_.check());
  }
  return builder_.choice(std::move(branches));
}

base::Result<ir::ExprId> SchemaCompiler::value_of(const Schemas& schemas) {
  if (const auto values = TRY(listed_values(schemas))) {
    std::vector<ir::ExprId> branches;
    for (const Node each : *values) branches.push_back(builder_.literal(to_json(*each)));
    return builder_.choice(std::move(branches));
  }
  return typed_value(schemas, TRY(allowed_types(document_, schemas)));
}

base::Result<ir::ExprId> SchemaCompiler::typed_value(const Schemas& schemas, std::uint32_t types) {
  std::vector<ir::ExprId> branches;
  if ((types & kNull) != 0) branches.push_back(builder_.literal("null"));
  if ((types & kBoolean) != 0) {
    branches.push_back(builder_.literal("true"));
    branches.push_back(builder_.literal("false"));
  }
  if ((types & kInteger) != 0) branches.push_back(TRY(number(schemas, (types & kNumber) == kInteger)));
  if ((types & kString) != 0) branches.push_back(TRY(string(schemas)));
  if ((types & kArray) != 0) branches.push_back(TRY(array(schemas)));
  if ((types & kObject) != 0) branches.push_back(TRY(object(schemas)));
  return builder_.choice(std::move(branches));
}

}  // namespace llorch::grammar::json_schema
