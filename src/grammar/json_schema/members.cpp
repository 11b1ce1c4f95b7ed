#include "grammar/json_schema/members.h"

#include <utility>

#include "grammar/ir/code_points.h"

namespace llorch::grammar::json_schema {

base::Result<std::optional<ir::Dfa>> language_of_pattern(ir::Builder& builder, const frontend::Pattern& pattern) {
  ir::Work work = builder.work();
  auto out = frontend::to_dfa(pattern, kLanguageStatesMax, &work);
  TRY(builder.spend(work));
  return out;
}

base::Result<std::span<const MemberPattern>> Members::patterns_of(Node schema) {
  const boost::json::object* patterns = TRY(document_.object(schema, "patternProperties"));
  if (!patterns) return std::span<const MemberPattern>();
  const auto known = patterns_.find(schema);
  if (known != patterns_.end()) return known->second;
  std::vector<MemberPattern> out;
  for (const auto& member : *patterns) {
    const auto pattern = TRY(read_pattern(document_, schema, "patternProperties", member.key(), builder_.limits()));
    auto names = TRY(language_of_pattern(builder_, pattern));
    if (!names) return document_.failure(schema, "patternProperties", "a pattern is too large");
    out.push_back({schema, &member.value(), std::move(*names)});
  }
  return patterns_[schema] = std::move(out);
}

base::Result<std::vector<Node>> Members::schemas_of(Node schema, std::string_view name) {
  std::vector<Node> out;
  if (const boost::json::object* properties = TRY(document_.object(schema, "properties"))) {
    if (const boost::json::value* own = properties->if_contains(name)) out.push_back(own);
  }
  if (const auto patterns = TRY(patterns_of(schema)); !patterns.empty()) {
    TRY(builder_.spend((patterns.size() + 1) * name.size()));
    const std::vector<ir::Symbol> word = ir::code_points(name);
    for (const MemberPattern& pattern : patterns) {
      if (pattern.names.contains(word)) out.push_back(pattern.schema);
    }
  }
  if (!out.empty()) return out;
  if (const boost::json::value* additional = schema->get_object().if_contains("additionalProperties")) {
    out.push_back(additional);
  }
  return out;
}

}  // namespace llorch::grammar::json_schema
