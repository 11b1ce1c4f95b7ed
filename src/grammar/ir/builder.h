#pragma once
// What the front-ends write: rules over bytes, as expressions. compiler.h makes automata of it.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/ir/automaton.h"
#include "grammar/limits.h"

namespace llorch::grammar::ir {

enum class RuleId : std::uint32_t {};
enum class ExprId : std::uint32_t {};
constexpr std::uint32_t index(RuleId id) { return static_cast<std::uint32_t>(id); }
constexpr std::uint32_t index(ExprId id) { return static_cast<std::uint32_t>(id); }

// In an automaton, the symbols from 256 on are calls of rules.
inline constexpr Symbol kFirstCall = 256;
constexpr Symbol call_symbol(RuleId rule) { return kFirstCall + index(rule); }

// The largest count of a repetition that a grammar may spell; kUnbounded is above it.
inline constexpr std::uint64_t kRepeatCountMax = 1u << 30;
inline constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();

struct Bounds {
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;  // inclusive
};

struct Expr {
  enum class Kind { kNothing, kEmpty, kLiteral, kByteRange, kSequence, kChoice, kRepeat, kRule, kAutomaton };
  Kind kind;
  std::vector<ExprId> children;
  std::string literal;
  std::uint8_t first = 0, last = 0;  // kByteRange
  Bounds bounds;                     // kRepeat, of its one child
  RuleId rule{};
  std::uint32_t automaton = 0;
};

// Expressions name only earlier ones and rules, so one pass in order sees children before their parents.
class Builder {
 public:
  explicit Builder(const Limits& limits) : limits_(limits) {}

  ExprId nothing();  // matches no string at all
  ExprId empty();
  ExprId literal(std::string_view bytes);
  // The control token and nothing else.
  ExprId control_token(base::TokenId id);
  ExprId byte_range(std::uint8_t first, std::uint8_t last);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> branches);
  ExprId optional(ExprId part) { return choice({empty(), part}); }
  // A large one becomes a rule that counts, so no bound multiplies the grammar. REQUIRES bounds.min <= bounds.max.
  ExprId repeat(ExprId part, Bounds bounds);
  ExprId call(RuleId rule);
  // An automaton over bytes and calls.
  ExprId automaton(Nfa nfa);
  // States that automata may have yet: check() refuses one that has more.
  std::size_t automaton_states_left() const {
    return automaton_states_max() - std::min(automaton_states_, automaton_states_max());
  }
  // What make() returned for the first equal `key`: a grammar may spell one set of characters a million times.
  template <class Make>
  ExprId shared(std::vector<std::uint32_t> key, const Make& make) {
    const auto [it, added] = shared_.try_emplace(std::move(key));
    if (added) it->second = make();
    return it->second;
  }

  // `name` is for messages.
  RuleId declare(std::string name);
  void define(RuleId rule, ExprId body);

  // Counts steps over a JSON schema, which need not leave an expression. INVALID_PARAMS past the limit.
  base::Result<> spend(std::size_t steps);
  // What operations on automata may take of the steps that are left, and that it was taken: their steps are half as long.
  Work work() const;
  base::Result<> spend(const Work& work) { return spend((work.spent() + kWorkPerStep - 1) / kWorkPerStep); }

  // INVALID_PARAMS once a limit is broken; every later answer of the builder is then worthless.
  base::Result<> check() const;
  // Whether check() refuses, so that nothing more needs to be made.
  bool is_over() const { return has_too_many_rules() || is_too_large(); }

  const Limits& limits() const { return limits_; }

  struct Rule {
    std::string name;
    ExprId body{};
    bool counted = false;  // `body` calls the item, `bounds` times
    RuleId item{};
    Bounds bounds;
  };
  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<Expr>& exprs() const { return exprs_; }
  const Expr& expr(ExprId id) const { return exprs_[index(id)]; }
  const Nfa& nfa(std::uint32_t number) const { return automata_[number]; }
  const std::vector<base::TokenId>& control_tokens() const { return control_tokens_; }  // ascending

 private:
  static constexpr std::size_t kWorkPerStep = 2;

  bool has_too_many_rules() const { return rules_.size() > limits_.rules_max; }
  // Nested expressions count their parts again, hence the factor: the automata are bounded one by one later.
  bool is_too_large() const {
    return total_size_ > 16 * limits_.nfa_states_max || automaton_states_ > automaton_states_max();
  }
  // Automata are made before the rules of them, so their memory is bounded here: a state takes some 100 bytes. Rules that are within
  // states_max are made of fewer.
  std::size_t automaton_states_max() const { return 2 * limits_.nfa_states_max; }
  ExprId add(Expr expr, std::size_t size);
  std::size_t size_of(ExprId id) const { return sizes_[index(id)]; }

  Limits limits_;
  std::vector<Expr> exprs_;
  std::vector<std::size_t> sizes_;  // automaton states an expression will take, about
  std::vector<Rule> rules_;
  std::vector<Nfa> automata_;
  std::map<std::vector<std::uint32_t>, ExprId> shared_;
  std::vector<base::TokenId> control_tokens_;
  std::size_t total_size_ = 0;
  std::size_t automaton_states_ = 0;
  std::size_t steps_ = 0;
};

}  // namespace llorch::grammar::ir
