#include "grammar/json_schema/members.h"

#include <utility>

#include "grammar/ir/code_points.h"

namespace llorch::grammar::json_schema {

base::Result<std::vector<MemberPattern>> member_patterns(const Document& document, Node schema, const Limits& limits) {
  std::vector<MemberPattern> out;
  const boost::json::object* patterns = TRY(document.object(schema, "patternProperties"));
  if (!patterns) return out;
  for (const auto& member : *patterns) {
    const auto pattern = TRY(read_pattern(document, schema, "patternProperties", member.key(), limits));
    auto names = frontend::to_dfa(pattern, kLanguageStatesMax);
    if (!names) return document.failure(schema, "patternProperties", "a pattern is too large");
    out.push_back({schema, &member.value(), std::move(*names)});
  }
  return out;
}

base::Result<std::vector<Node>> schemas_of_member(const Document& document, Node schema, std::string_view name,
                                                  const Limits& limits) {
  std::vector<Node> out;
  if (const boost::json::object* properties = TRY(document.object(schema, "properties"))) {
    if (const boost::json::value* own = properties->if_contains(name)) out.push_back(own);
  }
  for (const MemberPattern& pattern : TRY(member_patterns(document, schema, limits))) {
    if (pattern.names.contains(ir::code_points(name))) out.push_back(pattern.schema);
  }
  if (!out.empty()) return out;
  if (const boost::json::value* additional = schema->get_object().if_contains("additionalProperties")) {
    out.push_back(additional);
  }
  return out;
}

}  // namespace llorch::grammar::json_schema
