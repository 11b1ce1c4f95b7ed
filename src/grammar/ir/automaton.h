#pragma once
// Finite automata over integer symbols: code points while a text language is computed, bytes and rule calls in a grammar.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace llorch::grammar::ir {

using Symbol = std::uint32_t;

struct SymbolRange {
  Symbol first;
  Symbol last;  // inclusive
  bool operator==(const SymbolRange&) const = default;
};

// Ascending, disjoint, not adjacent.
using SymbolSet = std::vector<SymbolRange>;
SymbolSet normalise(std::vector<SymbolRange> ranges);
SymbolSet complement(const SymbolSet& set, SymbolRange universe);
SymbolSet intersection(const SymbolSet& a, const SymbolSet& b);

// Built by joining pieces (Thompson): each piece has one entry and one exit.
struct Nfa {
  struct Edge {
    Symbol first;
    Symbol last;
    std::uint32_t to;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<std::uint32_t> epsilons;
  };
  std::vector<State> states;
  std::uint32_t start = 0;
  std::uint32_t accept = 0;

  std::uint32_t add_state() {
    states.emplace_back();
    return static_cast<std::uint32_t>(states.size() - 1);
  }
};

// Deterministic; state 0 is the start; every other state is reachable and reaches an accepting one. Edges ascend and are
// disjoint.
struct Dfa {
  struct Edge {
    Symbol first;
    Symbol last;
    std::uint32_t to;
    bool operator==(const Edge&) const = default;
  };
  struct State {
    std::vector<Edge> edges;
    bool accepts = false;
    bool operator==(const State&) const = default;
  };
  std::vector<State> states;

  bool is_empty() const { return states.size() == 1 && !states[0].accepts; }
  std::optional<std::uint32_t> step(std::uint32_t state, Symbol symbol) const;
  bool contains(std::span<const Symbol> word) const;
};

// The states and edges that operations look at, and how many they may: what bounds memory and time where the number of states does
// not.
class Work {
 public:
  static constexpr std::size_t kMax = 16 << 20;  // half a second

  explicit Work(std::size_t max = kMax) : max_(max) {}
  void spend(std::size_t steps) { spent_ += steps; }
  std::size_t spent() const { return spent_; }
  bool is_over() const { return spent_ > max_; }

 private:
  std::size_t max_;
  std::size_t spent_ = 0;
};

// All of these: nothing when the result would have more than `states_max` states on the way, or as soon as `work` is over. Without
// `work` each has one of its own.
std::optional<Dfa> determinise(const Nfa& nfa, std::size_t states_max, Work* work = nullptr);
std::optional<Dfa> intersect(const Dfa& a, const Dfa& b, std::size_t states_max, Work* work = nullptr);
std::optional<Dfa> unite(const Dfa& a, const Dfa& b, std::size_t states_max, Work* work = nullptr);
std::optional<Dfa> subtract(const Dfa& a, const Dfa& b, std::size_t states_max, Work* work = nullptr);

// The automaton of a step function over abstract states: explored from `start`. `step` answers a state or -1.
std::optional<Dfa> explore(std::int64_t start, std::string_view alphabet,
                           const std::function<std::int64_t(std::int64_t, char)>& step,
                           const std::function<bool(std::int64_t)>& accepts, std::size_t states_max,
                           Work* work = nullptr);

Nfa to_nfa(const Dfa& dfa);
// Adds `part` between two states of `nfa`.
void insert(Nfa& nfa, const Nfa& part, std::uint32_t from, std::uint32_t to);

}  // namespace llorch::grammar::ir
