#include "grammar/ir/rule_properties.h"

#include <cstdint>
#include <limits>

namespace llorch::grammar::ir {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// The least set of rules and expressions with a property that goes from parts to the whole. Nothing is looked at twice:
// whatever lacks a part waits for that part alone, and goes on where it stopped.
class LeastSolution {
 public:
  // `of_leaf`: whether an expression without parts has the property. `takes_bytes`: whether the edges of automata that are
  // no calls have it.
  LeastSolution(const Builder& builder, bool (*of_leaf)(const Expr&), bool takes_bytes)
      : builder_(builder),
        of_leaf_(of_leaf),
        takes_bytes_(takes_bytes),
        holds_(builder.exprs().size() + builder.rules().size()),
        waiting_(holds_.size(), kNone),
        progress_(builder.exprs().size()),
        seen_(builder.exprs().size()) {}

  std::vector<bool> rules() && {
    const auto exprs = static_cast<std::uint32_t>(builder_.exprs().size());
    for (std::uint32_t i = 0; i < exprs; ++i) begin(i);
    for (std::uint32_t i = 0; i < builder_.rules().size(); ++i) {
      const Builder::Rule& rule = builder_.rules()[i];
      if (rule.counted && rule.bounds.min == 0) {
        set(exprs + i);
      } else {
        wait({exprs + i}, rule.counted ? node(rule.item) : index(rule.body));
      }
    }
    while (!work_.empty()) {
      std::uint32_t at = waiting_[work_.back()];
      work_.pop_back();
      for (; at != kNone; at = waits_[at].next) wake(waits_[at].who);
    }
    return {holds_.begin() + exprs, holds_.end()};
  }

 private:
  // Nodes are expressions and, behind them, rules.
  struct Waiter {
    std::uint32_t node;
    std::uint32_t state = 0;  // of an automaton: where the edge leads
  };
  struct Wait {
    Waiter who;
    std::uint32_t next;
  };

  std::uint32_t node(RuleId rule) const { return static_cast<std::uint32_t>(builder_.exprs().size()) + index(rule); }

  void set(std::uint32_t node) {
    if (holds_[node]) return;
    holds_[node] = true;
    work_.push_back(node);
  }

  void wait(Waiter who, std::uint32_t node) {
    if (holds_[node]) return wake(who);
    waits_.push_back({who, waiting_[node]});
    waiting_[node] = static_cast<std::uint32_t>(waits_.size() - 1);
  }

  void wake(const Waiter& who) {
    if (holds_[who.node]) return;
    const bool is_expr = who.node < builder_.exprs().size();
    const Expr::Kind kind = is_expr ? builder_.exprs()[who.node].kind : Expr::Kind::kRule;
    if (kind == Expr::Kind::kSequence) return go_on(who.node);
    if (kind == Expr::Kind::kAutomaton) return explore(who.node, who.state);
    set(who.node);
  }

  void begin(std::uint32_t id) {
    const Expr& expr = builder_.exprs()[id];
    switch (expr.kind) {
      case Expr::Kind::kSequence: return go_on(id);
      case Expr::Kind::kChoice:
        for (const ExprId branch : expr.children) wait({id}, index(branch));
        return;
      case Expr::Kind::kRepeat: return expr.bounds.min == 0 ? set(id) : wait({id}, index(expr.children[0]));
      case Expr::Kind::kRule: return wait({id}, node(expr.rule));
      case Expr::Kind::kAutomaton: return explore(id, builder_.nfa(expr.automaton).start);
      default:
        if (of_leaf_(expr)) set(id);
    }
  }

  void go_on(std::uint32_t id) {
    const std::vector<ExprId>& parts = builder_.exprs()[id].children;
    std::uint32_t& done = progress_[id];
    while (done < parts.size() && holds_[index(parts[done])]) ++done;
    if (done == parts.size()) return set(id);
    wait({id}, index(parts[done]));
  }

  void explore(std::uint32_t id, std::uint32_t from) {
    const Nfa& nfa = builder_.nfa(builder_.exprs()[id].automaton);
    std::vector<bool>& seen = seen_[id];
    seen.resize(nfa.states.size());
    std::vector<std::uint32_t> path{from};
    while (!path.empty()) {
      const std::uint32_t state = path.back();
      path.pop_back();
      if (state == nfa.accept) return set(id);
      if (seen[state]) continue;
      seen[state] = true;
      path.insert(path.end(), nfa.states[state].epsilons.begin(), nfa.states[state].epsilons.end());
      for (const Nfa::Edge& edge : nfa.states[state].edges) {
        const bool is_call = edge.first >= kFirstCall;
        const bool can_take = is_call ? holds_[node(RuleId{edge.first - kFirstCall})] : takes_bytes_;
        if (can_take) {
          path.push_back(edge.to);
        } else if (is_call) {
          wait({id, edge.to}, node(RuleId{edge.first - kFirstCall}));
        }
      }
    }
  }

  const Builder& builder_;
  bool (*of_leaf_)(const Expr&);
  bool takes_bytes_;
  std::vector<bool> holds_;
  std::vector<std::uint32_t> waiting_;  // the last Wait for a node
  std::vector<Wait> waits_;
  std::vector<std::uint32_t> progress_;  // parts of a sequence that have the property, from the first
  std::vector<std::vector<bool>> seen_;  // states of an automaton
  std::vector<std::uint32_t> work_;      // what waits for them may go on
};

}  // namespace

std::vector<bool> nullable_rules(const Builder& builder) {
  const auto of_leaf = [](const Expr& expr) {
    return expr.kind == Expr::Kind::kEmpty || (expr.kind == Expr::Kind::kLiteral && expr.literal.empty());
  };
  return LeastSolution(builder, of_leaf, false).rules();
}

std::vector<bool> productive_rules(const Builder& builder) {
  return LeastSolution(
             builder, [](const Expr& expr) { return expr.kind != Expr::Kind::kNothing; }, true)
      .rules();
}

}  // namespace llorch::grammar::ir
