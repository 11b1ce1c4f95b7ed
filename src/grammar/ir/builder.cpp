#include "grammar/ir/builder.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "grammar/control_token.h"

namespace llorch::grammar::ir {
namespace {

// Repetitions are written out up to this many automaton states, a number's digits about; beyond it a counter is smaller.
constexpr std::size_t kWrittenOutMax = 160;

// A call takes two states and leads to a rule of unknown size: repeated often it is better counted, because the places of
// a counter share their masks.
constexpr std::size_t kCallSize = 40;

}  // namespace

ExprId Builder::add(Expr expr, std::size_t size) {
  total_size_ += size;
  exprs_.push_back(std::move(expr));
  sizes_.push_back(size);
  return ExprId{static_cast<std::uint32_t>(exprs_.size() - 1)};
}

ExprId Builder::nothing() { return add({.kind = Expr::Kind::kNothing}, 1); }
ExprId Builder::empty() { return add({.kind = Expr::Kind::kEmpty}, 1); }

ExprId Builder::literal(std::string_view bytes) {
  return add({.kind = Expr::Kind::kLiteral, .literal = std::string(bytes)}, bytes.size() + 1);
}

ExprId Builder::control_token(base::TokenId id) {
  const auto at = std::lower_bound(control_tokens_.begin(), control_tokens_.end(), id);
  if (at == control_tokens_.end() || *at != id) control_tokens_.insert(at, id);
  return literal(ControlTokenBytes(id).view());
}

ExprId Builder::byte_range(std::uint8_t first, std::uint8_t last) {
  ASSERT(first <= last);
  return add({.kind = Expr::Kind::kByteRange, .first = first, .last = last}, 2);
}

ExprId Builder::sequence(std::vector<ExprId> parts) {
  std::size_t size = 1;
  for (const ExprId part : parts) size += size_of(part);
  return add({.kind = Expr::Kind::kSequence, .children = std::move(parts)}, size);
}

ExprId Builder::choice(std::vector<ExprId> branches) {
  std::size_t size = 2;
  for (const ExprId branch : branches) size += size_of(branch);
  return add({.kind = Expr::Kind::kChoice, .children = std::move(branches)}, size);
}

ExprId Builder::repeat(ExprId part, Bounds bounds) {
  ASSERT(bounds.min <= bounds.max, "{} {}", bounds.min, bounds.max);
  if (bounds.max == 0) return empty();
  const std::uint64_t copies = bounds.max == kUnbounded ? std::uint64_t{bounds.min} + 1 : bounds.max;
  const std::uint64_t size = size_of(part) * copies;
  if (copies == 1 || size <= kWrittenOutMax) {
    return add({.kind = Expr::Kind::kRepeat, .children = {part}, .bounds = bounds}, size + 2);
  }
  RuleId item{};
  if (expr(part).kind == Expr::Kind::kRule) {
    item = expr(part).rule;
  } else {
    item = declare("repeated item");
    define(item, part);
  }
  const RuleId counter = declare("repetition");
  rules_[index(counter)] = {.name = "repetition", .counted = true, .item = item, .bounds = bounds};
  return call(counter);
}

ExprId Builder::call(RuleId rule) { return add({.kind = Expr::Kind::kRule, .rule = rule}, kCallSize); }

ExprId Builder::automaton(Nfa nfa) {
  const std::size_t size = nfa.states.size();
  automaton_states_ += size;
  automata_.push_back(std::move(nfa));
  return add({.kind = Expr::Kind::kAutomaton, .automaton = static_cast<std::uint32_t>(automata_.size() - 1)}, size);
}

RuleId Builder::declare(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return RuleId{static_cast<std::uint32_t>(rules_.size() - 1)};
}

void Builder::define(RuleId rule, ExprId body) { rules_[index(rule)].body = body; }

base::Result<> Builder::spend(std::size_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.schema_steps_max) return {};
  return base::fail(base::ErrorCode::kInvalidParams,
                    fmt::format("the JSON schema takes more than {} steps to compile; make it smaller, with fewer "
                                "combinations",
                                limits_.schema_steps_max));
}

Work Builder::work() const {
  const std::size_t left = limits_.schema_steps_max - std::min(steps_, limits_.schema_steps_max);
  return Work(std::min(kWorkPerStep * left, Work::kMax));
}

base::Result<> Builder::check() const {
  if (has_too_many_rules()) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("the grammar needs more than {} rules; make it smaller", limits_.rules_max));
  }
  if (is_too_large()) {
    return base::fail(base::ErrorCode::kInvalidParams, "the grammar is too large; make it smaller");
  }
  return {};
}

}  // namespace llorch::grammar::ir
