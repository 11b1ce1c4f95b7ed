#pragma once
// Regular expressions: the part of ECMA-262 (`u` flag) that describes regular languages of code points.
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/ir/automaton.h"
#include "grammar/ir/builder.h"
#include "grammar/ir/code_points.h"
#include "grammar/limits.h"

namespace llorch::grammar::frontend {

struct Pattern {
  enum class Kind { kSet, kSequence, kChoice, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kSequence;  // an empty sequence matches the empty string
  ir::SymbolSet set;
  std::vector<Pattern> children;
  ir::Bounds bounds;
};

enum class Match {
  kWhole,   // the whole text matches
  kSearch,  // some part of it does, as JSON Schema's `pattern` has it
};

// The result has no anchors left and stands for whole texts. INVALID_PARAMS with the byte offset: malformed, unsupported
// (anchors other than at the ends, look-around, back-references, \b, \p, flags) or too deep.
base::Result<Pattern> parse_pattern(std::string_view expression, Match match, const Limits& limits);

// Matching as rules: repetitions of any size stay small.
ir::ExprId to_expr(ir::Builder& builder, const Pattern& pattern, ir::Encoding encoding);
// Matching as an automaton over code points, for set operations; nothing when it is too large. `work`: as determinise().
std::optional<ir::Dfa> to_dfa(const Pattern& pattern, std::size_t states_max, ir::Work* work = nullptr);

}  // namespace llorch::grammar::frontend
