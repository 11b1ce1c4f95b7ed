#pragma once
// Which sub-schemas apply to a member of an object.
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/ir/builder.h"
#include "grammar/json_schema/conditions.h"

namespace llorch::grammar::json_schema {

// Automata of string languages: of patterns, names and lengths put together.
inline constexpr std::size_t kLanguageStatesMax = 20000;

// What an automaton of the pattern takes is counted in `builder`'s steps. Nothing when it is too large.
base::Result<std::optional<ir::Dfa>> language_of_pattern(ir::Builder& builder, const frontend::Pattern& pattern);

// A pattern of `patternProperties` and its automaton over code points.
struct MemberPattern {
  Node owner;
  Node schema;
  ir::Dfa names;
};

// Reads each `patternProperties` once.
class Members {
 public:
  // Both outlive it.
  Members(const Document& document, ir::Builder& builder) : document_(document), builder_(builder) {}

  base::Result<std::span<const MemberPattern>> patterns_of(Node schema);
  // What `schema` alone asks of a member `name`: `properties` and matching `patternProperties`, else
  // `additionalProperties`.
  base::Result<std::vector<Node>> schemas_of(Node schema, std::string_view name);

 private:
  const Document& document_;
  ir::Builder& builder_;
  std::unordered_map<Node, std::vector<MemberPattern>> patterns_;
};

}  // namespace llorch::grammar::json_schema
