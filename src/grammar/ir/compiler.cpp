#include "grammar/ir/compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "grammar/ir/digest.h"
#include "grammar/ir/rule_properties.h"

namespace llorch::grammar::ir {
namespace {

using base::ErrorCode;
using base::fail;

class RuleLowering {
 public:
  RuleLowering(const Builder& builder, const std::vector<bool>& nullable, const std::vector<bool>& productive)
      : builder_(builder), nullable_(nullable), productive_(productive) {}

  // Nothing when it takes more states than the limits allow.
  std::optional<Nfa> lower(ExprId body) {
    nfa_ = {};
    nfa_.start = nfa_.add_state();
    nfa_.accept = nfa_.add_state();
    add(builder_.expr(body), nfa_.start, nfa_.accept);
    if (is_full()) return std::nullopt;
    return std::move(nfa_);
  }

 private:
  bool is_full() const { return nfa_.states.size() > builder_.limits().nfa_states_max; }
  void epsilon(std::uint32_t from, std::uint32_t to) { nfa_.states[from].epsilons.push_back(to); }

  void add(const Expr& expr, std::uint32_t from, std::uint32_t to) {
    if (is_full()) return;
    switch (expr.kind) {
      case Expr::Kind::kNothing: return;
      case Expr::Kind::kEmpty: return epsilon(from, to);
      case Expr::Kind::kLiteral: return add_literal(expr, from, to);
      case Expr::Kind::kByteRange: nfa_.states[from].edges.push_back({expr.first, expr.last, to}); return;
      case Expr::Kind::kSequence: return add_sequence(expr, from, to);
      case Expr::Kind::kChoice:
        for (const ExprId branch : expr.children) {
          const std::uint32_t begin = nfa_.add_state();
          epsilon(from, begin);
          add(builder_.expr(branch), begin, to);
        }
        return;
      case Expr::Kind::kRepeat: return add_repeat(expr, from, to);
      case Expr::Kind::kRule: return add_edge(nfa_.states[from], {call_symbol(expr.rule), call_symbol(expr.rule), to});
      case Expr::Kind::kAutomaton: return add_automaton(builder_.nfa(expr.automaton), from, to);
    }
  }

  // A call that cannot succeed is left out, one that may take nothing gets a way around it.
  void add_edge(Nfa::State& from, const Nfa::Edge& edge) const {
    if (edge.first >= kFirstCall) {
      if (!productive_[edge.first - kFirstCall]) return;
      if (nullable_[edge.first - kFirstCall]) from.epsilons.push_back(edge.to);
    }
    from.edges.push_back(edge);
  }

  void add_literal(const Expr& expr, std::uint32_t from, std::uint32_t to) {
    for (const char c : expr.literal) {
      const std::uint32_t next = nfa_.add_state();
      const Symbol byte = static_cast<unsigned char>(c);
      nfa_.states[from].edges.push_back({byte, byte, next});
      from = next;
    }
    epsilon(from, to);
  }

  void add_sequence(const Expr& expr, std::uint32_t from, std::uint32_t to) {
    for (const ExprId part : expr.children) {
      const std::uint32_t next = nfa_.add_state();
      add(builder_.expr(part), from, next);
      from = next;
    }
    epsilon(from, to);
  }

  void add_repeat(const Expr& expr, std::uint32_t from, std::uint32_t to) {
    const Expr& part = builder_.expr(expr.children[0]);
    const auto once_more = [&] {
      const std::uint32_t next = nfa_.add_state();
      add(part, from, next);
      from = next;
    };
    for (std::uint32_t i = 0; i < expr.bounds.min && !is_full(); ++i) once_more();
    if (expr.bounds.max == kUnbounded) {
      const std::uint32_t loop = nfa_.add_state(), end = nfa_.add_state();
      epsilon(from, loop);
      add(part, loop, end);
      epsilon(end, loop);
      epsilon(loop, to);
      return;
    }
    for (std::uint32_t i = expr.bounds.min; i < expr.bounds.max && !is_full(); ++i) {
      epsilon(from, to);
      once_more();
    }
    epsilon(from, to);
  }

  void add_automaton(const Nfa& nfa, std::uint32_t from, std::uint32_t to) {
    const auto base = static_cast<std::uint32_t>(nfa_.states.size());
    for (const Nfa::State& state : nfa.states) {
      Nfa::State copy;
      for (const std::uint32_t target : state.epsilons) copy.epsilons.push_back(base + target);
      for (const Nfa::Edge& edge : state.edges) add_edge(copy, {edge.first, edge.last, base + edge.to});
      nfa_.states.push_back(std::move(copy));
    }
    epsilon(from, base + nfa.start);
    epsilon(base + nfa.accept, to);
  }

  const Builder& builder_;
  const std::vector<bool>& nullable_;
  const std::vector<bool>& productive_;
  Nfa nfa_;
};

void append(RuleSet& out, RuleId id, const Dfa& dfa) {
  const auto base = static_cast<std::uint32_t>(out.states.size());
  for (const Dfa::State& state : dfa.states) {
    RuleSet::State row{};
    row.rule = id;
    row.accepts = state.accepts;
    row.edges_begin = static_cast<std::uint32_t>(out.all_edges.size());
    row.calls_begin = static_cast<std::uint32_t>(out.all_calls.size());
    for (const Dfa::Edge& edge : state.edges) {
      const std::uint32_t to = base + edge.to;
      if (edge.first < kFirstCall) {
        const Symbol last = std::min(edge.last, kFirstCall - 1);
        out.all_edges.push_back({static_cast<std::uint8_t>(edge.first), static_cast<std::uint8_t>(last), to});
        for (Symbol byte = edge.first; byte <= last; ++byte) out.used_bytes.set(byte);
      }
      for (Symbol call = std::max(edge.first, kFirstCall); call <= edge.last; ++call) {
        out.all_calls.push_back({RuleId{call - kFirstCall}, to});
      }
    }
    row.edges_end = static_cast<std::uint32_t>(out.all_edges.size());
    row.calls_end = static_cast<std::uint32_t>(out.all_calls.size());
    out.states.push_back(row);
  }
}

base::Result<> add_rules(const Builder& builder, RuleSet& out) {
  const std::vector<bool> nullable = nullable_rules(builder), productive = productive_rules(builder);
  if (!productive[index(out.root)]) {
    return fail(ErrorCode::kInvalidParams, "no output at all can satisfy the grammar; loosen its conditions");
  }
  RuleLowering lowering(builder, nullable, productive);
  constexpr std::size_t kWorkPerState = 256;  // some thirty are usual
  const std::size_t work_max = kWorkPerState * builder.limits().states_max;
  Work work(work_max);  // of all rules
  for (std::uint32_t i = 0; i < builder.rules().size(); ++i) {
    const Builder::Rule& rule = builder.rules()[i];
    RuleSet::Rule& compiled = out.rules.emplace_back();
    compiled.start = static_cast<std::uint32_t>(out.states.size());
    if (rule.counted) {
      compiled.counted = true;
      compiled.item = rule.item;
      compiled.bounds = rule.bounds;
      if (nullable[index(rule.item)]) compiled.bounds.min = 0;
      if (!productive[index(rule.item)]) compiled.bounds.max = compiled.bounds.min;
      append(out, RuleId{i}, Dfa{{{}}});
    } else if (productive[i]) {
      const Limits& limits = builder.limits();
      const std::optional<Nfa> nfa = lowering.lower(rule.body);
      if (!nfa) {
        return fail(ErrorCode::kInvalidParams,
                    fmt::format("{} needs more than {} states by itself; repeat less in it, or split it", rule.name,
                                limits.nfa_states_max));
      }
      const std::size_t room = limits.states_max - std::min(out.states.size(), limits.states_max);
      const std::optional<Dfa> dfa = determinise(*nfa, room, &work);
      if (!dfa && work.is_over()) {
        return fail(ErrorCode::kInvalidParams,
                    fmt::format("{} and all before it take more than {} steps to be made deterministic; have fewer "
                                "alternatives and repetitions that begin alike",
                                rule.name, work_max));
      }
      if (!dfa) {
        return fail(ErrorCode::kInvalidParams, fmt::format("{} and all before it need more than {} states together; "
                                                           "make the grammar smaller",
                                                           rule.name, limits.states_max));
      }
      append(out, RuleId{i}, *dfa);
    } else {
      append(out, RuleId{i}, Dfa{{{}}});
    }
    compiled.end = static_cast<std::uint32_t>(out.states.size());
  }
  return {};
}

// A counting rule's ruler counts further than any token has bytes.
constexpr std::uint32_t kEndless = 1u << 31;

void add_rulers(RuleSet& out) {
  std::vector<std::optional<RuleId>> rulers(out.rules.size());  // by item
  const std::size_t count = out.rules.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!out.rules[i].counted) continue;
    const RuleId item = out.rules[i].item;
    std::optional<RuleId>& ruler = rulers[index(item)];
    if (!ruler) {
      ruler = RuleId{static_cast<std::uint32_t>(out.rules.size())};
      RuleSet::Rule rule;
      rule.start = static_cast<std::uint32_t>(out.states.size());
      rule.end = rule.start + 1;
      rule.counted = true;
      rule.item = item;
      rule.bounds = {kEndless, kUnbounded};
      rule.ruler = *ruler;
      out.rules.push_back(rule);
      append(out, *ruler, Dfa{{{}}});
    }
    out.rules[i].ruler = *ruler;
  }
}

// Rules of one digest become one rule: what is computed of a rule then depends on its digest alone, not on how often a text spells
// the rule, and readings of equal rules are one.
void merge_equal_rules(RuleSet& rules) {
  std::map<std::array<std::uint8_t, 16>, RuleId> first;
  std::vector<RuleId> to(rules.rules.size());
  for (std::uint32_t i = 0; i < to.size(); ++i)
    to[i] = first.try_emplace(rules.rules[i].digest, RuleId{i}).first->second;
  rules.root = to[index(rules.root)];
  for (RuleSet::Call& call : rules.all_calls) call.rule = to[index(call.rule)];
  for (RuleSet::Rule& rule : rules.rules) {
    if (!rule.counted) continue;
    rule.item = to[index(rule.item)];
    rule.ruler = to[index(rule.ruler)];
  }
}

// Rules that `id` can call before it has taken a byte.
std::vector<RuleId> left_calls(const RuleSet& rules, RuleId id) {
  const RuleSet::Rule& rule = rules.rule(id);
  if (rule.counted) return rule.bounds.max > 0 ? std::vector{rule.item} : std::vector<RuleId>{};
  std::vector<RuleId> out;
  for (const RuleSet::Call& call : rules.calls(rule.start)) out.push_back(call.rule);
  return out;
}

// Ranks and first bytes, callees before callers.
base::Result<> order_rules(const Builder& builder, RuleSet& rules) {
  enum class Mark : std::uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(rules.rules.size(), Mark::kNew);
  std::uint32_t next_rank = static_cast<std::uint32_t>(rules.rules.size());
  rules.first_bytes.resize(rules.rules.size());
  struct Visit {
    RuleId rule;
    std::vector<RuleId> callees;
    std::size_t next = 0;
  };
  for (std::uint32_t i = 0; i < rules.rules.size(); ++i) {
    if (marks[i] != Mark::kNew) continue;
    std::vector<Visit> path{{RuleId{i}, left_calls(rules, RuleId{i})}};
    marks[i] = Mark::kOpen;
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next < visit.callees.size()) {
        const RuleId callee = visit.callees[visit.next++];
        if (marks[index(callee)] == Mark::kOpen) {
          return fail(ErrorCode::kInvalidParams,
                      fmt::format("{} begins with itself (left recursion); put the recursion behind something it reads",
                                  builder.rules()[index(callee)].name));
        }
        if (marks[index(callee)] == Mark::kNew) {
          marks[index(callee)] = Mark::kOpen;
          path.push_back({callee, left_calls(rules, callee)});
        }
        continue;
      }
      std::bitset<256>& first = rules.first_bytes[index(visit.rule)];
      for (const RuleId callee : visit.callees) first |= rules.first_bytes[index(callee)];
      for (const RuleSet::Edge& edge : rules.edges(rules.rule(visit.rule).start)) {
        for (unsigned byte = edge.first; byte <= edge.last; ++byte) first.set(byte);
      }
      rules.rules[index(visit.rule)].rank = --next_rank;
      marks[index(visit.rule)] = Mark::kDone;
      path.pop_back();
    }
  }
  return {};
}

}  // namespace

base::Result<std::shared_ptr<const RuleSet>> compile(const Builder& builder, RuleId root) {
  TRY(builder.check());
  auto rules = std::make_shared<RuleSet>();
  rules->root = root;
  rules->control_tokens = builder.control_tokens();
  TRY(add_rules(builder, *rules));
  add_rulers(*rules);
  set_digests(*rules);
  merge_equal_rules(*rules);
  TRY(order_rules(builder, *rules));
  return std::shared_ptr<const RuleSet>(std::move(rules));
}

std::vector<bool> completable_states(const RuleSet& rules, const std::bitset<256>& bytes) {
  std::vector<bool> out(rules.states.size());
  std::vector<std::uint32_t> work;
  const auto set = [&](std::uint32_t state) {
    if (!out[state]) work.push_back(state);
    out[state] = true;
  };
  // By a state that can be completed: which are completed by it, if `other` is completed too.
  struct Source {
    std::uint32_t state, other;
  };
  std::vector<std::vector<Source>> sources(out.size());
  for (std::uint32_t state = 0; state < out.size(); ++state) {
    const RuleSet::Rule& rule = rules.rule(rules.states[state].rule);
    if (rule.counted) {
      const std::uint32_t item = rules.rule(rule.item).start;
      sources[item].push_back({state, item});
      if (rule.bounds.min == 0) set(state);
      continue;
    }
    if (rules.states[state].accepts) set(state);
    for (const RuleSet::Edge& edge : rules.edges(state)) {
      unsigned byte = edge.first;
      while (byte <= edge.last && !bytes.test(byte)) ++byte;
      if (byte <= edge.last) sources[edge.to].push_back({state, edge.to});
    }
    for (const RuleSet::Call& call : rules.calls(state)) {
      const std::uint32_t callee = rules.rule(call.rule).start;
      sources[call.to].push_back({state, callee});
      sources[callee].push_back({state, call.to});
    }
  }
  while (!work.empty()) {
    const std::uint32_t state = work.back();
    work.pop_back();
    for (const Source& source : sources[state]) {
      if (out[source.other]) set(source.state);
    }
  }
  return out;
}

}  // namespace llorch::grammar::ir
