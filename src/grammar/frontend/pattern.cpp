#include "grammar/frontend/pattern.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "grammar/frontend/pattern_parser.h"

namespace llorch::grammar::frontend {
namespace {

using base::ErrorCode;
using base::fail;

Pattern sequence(std::vector<Pattern> children) {
  return {.kind = Pattern::Kind::kSequence, .children = std::move(children)};
}

Pattern anything() {
  const Pattern one{.kind = Pattern::Kind::kSet, .set = ir::all_code_points()};
  return {.kind = Pattern::Kind::kRepeat, .children = {one}, .bounds = {}};
}

bool has_anchor(const Pattern& pattern) {
  return pattern.kind == Pattern::Kind::kBegin || pattern.kind == Pattern::Kind::kEnd ||
         std::any_of(pattern.children.begin(), pattern.children.end(), has_anchor);
}

// An anchor has a meaning for whole texts only where nothing can come before (or after) it.
base::Result<Pattern> without_anchors(Pattern pattern, Match match) {
  if (pattern.kind == Pattern::Kind::kSequence && pattern.children.size() == 1) {
    return without_anchors(Pattern(std::move(pattern.children[0])), match);
  }
  if (pattern.kind == Pattern::Kind::kChoice) {
    for (Pattern& branch : pattern.children) branch = TRY(without_anchors(std::move(branch), match));
    return pattern;
  }
  std::vector<Pattern> parts;
  if (pattern.kind == Pattern::Kind::kSequence) {
    parts = std::move(pattern.children);
  } else {
    parts.push_back(std::move(pattern));
  }
  bool begins = match == Match::kWhole, ends = match == Match::kWhole;
  const auto begin =
      std::ranges::find_if_not(parts, [](const Pattern& part) { return part.kind == Pattern::Kind::kBegin; });
  begins = begins || begin != parts.begin();
  parts.erase(parts.begin(), begin);  // at once: an expression may be nothing else
  while (!parts.empty() && parts.back().kind == Pattern::Kind::kEnd) {
    parts.pop_back();
    ends = true;
  }
  if (std::any_of(parts.begin(), parts.end(), has_anchor)) {
    return fail(ErrorCode::kInvalidParams, "^ and $ are supported at the two ends of an alternative only");
  }
  if (!begins) parts.insert(parts.begin(), anything());
  if (!ends) parts.push_back(anything());
  return sequence(std::move(parts));
}

// An edge that is written out takes memory as well.
constexpr std::size_t kStepsPerEdge = 4;

// Breaks off where that takes more states, or more work.
void add(ir::Nfa& nfa, const Pattern& pattern, std::uint32_t from, std::uint32_t to, std::size_t states_max,
         ir::Work& work) {
  const auto is_over = [&] { return nfa.states.size() > states_max || work.is_over(); };
  if (is_over()) return;
  const auto epsilon = [&](std::uint32_t a, std::uint32_t b) { nfa.states[a].epsilons.push_back(b); };
  switch (pattern.kind) {
    case Pattern::Kind::kSet:
      work.spend(kStepsPerEdge * pattern.set.size());
      for (const ir::SymbolRange& range : pattern.set) nfa.states[from].edges.push_back({range.first, range.last, to});
      return;
    case Pattern::Kind::kChoice:
      for (const Pattern& branch : pattern.children) {
        const std::uint32_t begin = nfa.add_state();
        epsilon(from, begin);
        add(nfa, branch, begin, to, states_max, work);
      }
      return;
    case Pattern::Kind::kRepeat: {
      const bool unbounded = pattern.bounds.max == ir::kUnbounded;
      const std::uint32_t copies = unbounded ? pattern.bounds.min : pattern.bounds.max;
      for (std::uint32_t i = 0; i < copies && !is_over(); ++i) {
        if (i >= pattern.bounds.min) epsilon(from, to);
        const std::uint32_t next = nfa.add_state();
        add(nfa, pattern.children[0], from, next, states_max, work);
        from = next;
      }
      if (unbounded) {
        const std::uint32_t loop = nfa.add_state(), end = nfa.add_state();
        epsilon(from, loop);
        add(nfa, pattern.children[0], loop, end, states_max, work);
        epsilon(end, loop);
        from = loop;
      }
      return epsilon(from, to);
    }
    default:
      for (const Pattern& part : pattern.children) {
        const std::uint32_t next = nfa.add_state();
        add(nfa, part, from, next, states_max, work);
        from = next;
      }
      return epsilon(from, to);
  }
}

}  // namespace

base::Result<Pattern> parse_pattern(std::string_view expression, Match match, const Limits& limits) {
  return without_anchors(TRY(PatternParser(expression, limits).parse()), match);
}

ir::ExprId to_expr(ir::Builder& builder, const Pattern& pattern, ir::Encoding encoding) {
  if (builder.is_over()) return builder.nothing();  // whoever asks the builder is refused
  if (pattern.kind == Pattern::Kind::kSet) return ir::one_of(builder, pattern.set, encoding);
  std::vector<ir::ExprId> children;
  for (const Pattern& child : pattern.children) children.push_back(to_expr(builder, child, encoding));
  if (pattern.kind == Pattern::Kind::kChoice) return builder.choice(std::move(children));
  if (pattern.kind == Pattern::Kind::kRepeat) return builder.repeat(children[0], pattern.bounds);
  return builder.sequence(std::move(children));
}

std::optional<ir::Dfa> to_dfa(const Pattern& pattern, std::size_t states_max, ir::Work* work) {
  ir::Work own;
  ir::Work& done = work ? *work : own;
  ir::Nfa nfa;
  nfa.start = nfa.add_state();
  nfa.accept = nfa.add_state();
  add(nfa, pattern, nfa.start, nfa.accept, states_max, done);
  if (nfa.states.size() > states_max || done.is_over()) return std::nullopt;
  return ir::determinise(nfa, states_max, &done);
}

}  // namespace llorch::grammar::frontend
