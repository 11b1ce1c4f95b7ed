#pragma once
// Which sub-schemas apply to a member of an object.
#include <string_view>
#include <vector>

#include "grammar/json_schema/conditions.h"

namespace llorch::grammar::json_schema {

// Automata of string languages: of patterns, names and lengths put together.
inline constexpr std::size_t kLanguageStatesMax = 20000;

// A pattern of `patternProperties` and its automaton over code points.
struct MemberPattern {
  Node owner;
  Node schema;
  ir::Dfa names;
};
base::Result<std::vector<MemberPattern>> member_patterns(const Document& document, Node schema, const Limits& limits);

// What `schema` alone asks of a member `name`: `properties` and matching `patternProperties`, else
// `additionalProperties`.
base::Result<std::vector<Node>> schemas_of_member(const Document& document, Node schema, std::string_view name,
                                                  const Limits& limits);

}  // namespace llorch::grammar::json_schema
