#pragma once
// A compiled grammar: deterministic automata over bytes that call each other (a recursive transition network).
#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grammar/ir/builder.h"

namespace llorch::grammar::ir {

// Where a rule stands: one of its states, and for a counting rule how often its item has come.
struct Place {
  std::uint32_t state = 0;
  std::uint32_t count = 0;
  auto operator<=>(const Place&) const = default;
};

// Immutable after compile(). Every state reaches acceptance. A call that may match nothing has a way around it among the
// caller's own edges, so a call always takes at least one byte.
class RuleSet {
 public:
  struct Edge {
    std::uint8_t first;
    std::uint8_t last;
    std::uint32_t to;
  };
  struct Call {
    RuleId rule;
    std::uint32_t to;
  };
  struct State {
    std::uint32_t edges_begin, edges_end;
    std::uint32_t calls_begin, calls_end;
    RuleId rule;
    bool accepts;
  };
  struct Rule {
    std::uint32_t start = 0;  // its first state; a counting rule has only this one
    std::uint32_t end = 0;
    // A rule's rank is above that of every rule that can call it without a byte in between.
    std::uint32_t rank = 0;
    bool counted = false;
    RuleId item{};
    Bounds bounds;
    RuleId ruler{};  // of a counting rule: one that counts the same item and never comes to an end
    std::array<std::uint8_t, 16> digest{};  // of all automata the rule reaches
  };

  Place start() const { return {rule(root).start, 0}; }
  const Rule& rule(RuleId id) const { return rules[index(id)]; }
  const Rule& rule_of(Place place) const { return rule(states[place.state].rule); }
  std::span<const Edge> edges(std::uint32_t state) const {
    return std::span(all_edges).subspan(states[state].edges_begin, states[state].edges_end - states[state].edges_begin);
  }
  std::span<const Call> calls(std::uint32_t state) const {
    return std::span(all_calls).subspan(states[state].calls_begin, states[state].calls_end - states[state].calls_begin);
  }
  bool accepts(Place place) const {
    const Rule& of = rule_of(place);
    return of.counted ? place.count >= of.bounds.min : states[place.state].accepts;
  }
  // Whether nothing can follow within the rule.
  bool is_over(Place place) const {
    const State& state = states[place.state];
    const Rule& of = rule(state.rule);
    if (of.counted) return place.count == of.bounds.max;
    return state.edges_begin == state.edges_end && state.calls_begin == state.calls_end;
  }
  // REQUIRES a counting rule whose count is below its maximum.
  Place counted(Place place) const {
    const Bounds& bounds = rule_of(place).bounds;
    const bool saturated = bounds.max == kUnbounded && place.count == bounds.min;
    return {place.state, place.count + (saturated ? 0 : 1)};
  }
  bool starts_with(RuleId id, std::uint8_t byte) const { return first_bytes[index(id)].test(byte); }

  RuleId root{};
  std::vector<Rule> rules;
  std::vector<State> states;
  std::vector<Edge> all_edges;
  std::vector<Call> all_calls;
  std::vector<std::bitset<256>> first_bytes;  // per rule
  std::bitset<256> used_bytes;
  std::vector<base::TokenId> control_tokens;  // that the grammar names; ascending
};

// Per state, whether its rule can be completed with only these bytes from here.
std::vector<bool> completable_states(const RuleSet& rules, const std::bitset<256>& bytes);

}  // namespace llorch::grammar::ir
