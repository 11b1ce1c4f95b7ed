#include "grammar/ir/rule_properties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "grammar/ir/compiler.h"

namespace llorch::grammar::ir {
namespace {

class RandomRules {
 public:
  explicit RandomRules(std::uint64_t seed) : random_(seed) {
    for (std::size_t i = 0; i < 12; ++i) rules_.push_back(builder.declare("rule"));
    for (const RuleId rule : rules_) builder.define(rule, expr(3));
  }
  Builder builder{Limits{}};

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  RuleId any_rule() { return rules_[below(rules_.size())]; }

  ExprId expr(std::size_t depth) {
    switch (below(depth == 0 ? 5 : 9)) {
      case 0: return builder.nothing();
      case 1: return builder.literal(below(3) == 0 ? "" : "ab");
      case 2: return builder.automaton(nfa());
      case 3:
      case 4: return builder.call(any_rule());
      case 5:
      case 6: return builder.sequence({expr(depth - 1), expr(depth - 1), expr(depth - 1)});
      case 7: return builder.choice({expr(depth - 1), expr(depth - 1)});
      default:
        return builder.repeat(expr(depth - 1), {static_cast<std::uint32_t>(below(2)), below(2) == 0 ? 2U : 999U});
    }
  }

  Nfa nfa() {
    Nfa out;
    for (int i = 0; i < 6; ++i) out.add_state();
    out.accept = 5;
    for (int i = 0; i < 7; ++i) {
      Nfa::State& from = out.states[below(6)];
      const auto to = static_cast<std::uint32_t>(below(6));
      const Symbol call = call_symbol(any_rule());
      if (below(3) == 0) {
        from.epsilons.push_back(to);
      } else if (below(3) == 0) {
        from.edges.push_back({'a', 'b', to});
      } else {
        from.edges.push_back({call, call, to});
      }
    }
    return out;
  }

  std::mt19937_64 random_;
  std::vector<RuleId> rules_;
};

// What the rules of `builder` are, asked of everything again until nothing changes.
class Naive {
 public:
  Naive(const Builder& builder, bool of_text) : builder_(builder), of_text_(of_text), rules_(builder.rules().size()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < rules_.size(); ++i) {
        const Builder::Rule& rule = builder.rules()[i];
        const bool holds =
            rule.counted ? rule.bounds.min == 0 || rules_[index(rule.item)] : of(builder.expr(rule.body));
        changed |= holds && !rules_[i];
        rules_[i] = rules_[i] || holds;
      }
    }
  }
  const std::vector<bool>& rules() const { return rules_; }

 private:
  bool of(const Expr& expr) const {
    const auto of_child = [&](ExprId child) { return of(builder_.expr(child)); };
    switch (expr.kind) {
      case Expr::Kind::kNothing: return false;
      case Expr::Kind::kEmpty: return true;
      case Expr::Kind::kLiteral: return of_text_ || expr.literal.empty();
      case Expr::Kind::kByteRange: return of_text_;
      case Expr::Kind::kSequence: return std::ranges::all_of(expr.children, of_child);
      case Expr::Kind::kChoice: return std::ranges::any_of(expr.children, of_child);
      case Expr::Kind::kRepeat: return expr.bounds.min == 0 || of_child(expr.children[0]);
      case Expr::Kind::kRule: return rules_[index(expr.rule)];
      case Expr::Kind::kAutomaton: return of(builder_.nfa(expr.automaton));
    }
    return false;
  }

  bool of(const Nfa& nfa) const {
    std::vector<bool> reached(nfa.states.size());
    reached[nfa.start] = true;
    for (std::size_t round = 0; round < reached.size(); ++round) {
      for (std::size_t i = 0; i < reached.size(); ++i) {
        if (!reached[i]) continue;
        for (const std::uint32_t to : nfa.states[i].epsilons) reached[to] = true;
        for (const Nfa::Edge& edge : nfa.states[i].edges) {
          if (edge.first < kFirstCall ? of_text_ : rules_[edge.first - kFirstCall]) reached[edge.to] = true;
        }
      }
    }
    return reached[nfa.accept];
  }

  const Builder& builder_;
  bool of_text_;
  std::vector<bool> rules_;
};

TEST(RuleProperties, AgreeWithAskingEverythingAgain) {
  std::size_t nullable = 0, unproductive = 0, all = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomRules random(seed);
    ASSERT_EQ(nullable_rules(random.builder), Naive(random.builder, false).rules()) << seed;
    ASSERT_EQ(productive_rules(random.builder), Naive(random.builder, true).rules()) << seed;
    nullable += static_cast<std::size_t>(std::ranges::count(nullable_rules(random.builder), true));
    unproductive += static_cast<std::size_t>(std::ranges::count(productive_rules(random.builder), false));
    all += random.builder.rules().size();
  }
  EXPECT_GT(nullable, all / 10);
  EXPECT_LT(nullable, all * 9 / 10);
  EXPECT_GT(unproductive, all / 20);
}

// States from which single bytes of a set lead to acceptance.
TEST(RuleProperties, CompletableStatesAgreeWithAskingEverythingAgain) {
  const std::bitset<256> bytes = std::bitset<256>().set('a');
  std::size_t compiled = 0, incomplete = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomRules random(seed);
    const auto rules = compile(random.builder, RuleId{0});
    if (!rules) continue;
    ++compiled;
    std::vector<bool> expected((*rules)->states.size());
    for (std::size_t round = 0; round < expected.size(); ++round) {
      for (std::uint32_t state = 0; state < expected.size(); ++state) {
        const RuleSet::Rule& rule = (*rules)->rule((*rules)->states[state].rule);
        if (rule.counted) {
          expected[state] = rule.bounds.min == 0 || expected[(*rules)->rule(rule.item).start];
          continue;
        }
        bool holds = (*rules)->states[state].accepts;
        for (const auto& edge : (*rules)->edges(state)) {
          holds |= edge.first <= 'a' && edge.last >= 'a' && expected[edge.to];
        }
        for (const auto& call : (*rules)->calls(state)) {
          holds |= expected[call.to] && expected[(*rules)->rule(call.rule).start];
        }
        expected[state] = holds;
      }
    }
    ASSERT_EQ(completable_states(**rules, bytes), expected) << seed;
    incomplete += static_cast<std::size_t>(std::ranges::count(expected, false));
  }
  EXPECT_GT(compiled, 100U);
  EXPECT_GT(incomplete, compiled);
}

}  // namespace
}  // namespace llorch::grammar::ir
