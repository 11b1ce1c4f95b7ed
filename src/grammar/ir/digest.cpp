#include "grammar/ir/digest.h"

#include <algorithm>
#include <limits>

#include "base/sha256.h"

namespace llorch::grammar::ir {
namespace {

constexpr std::uint32_t kUnvisited = std::numeric_limits<std::uint32_t>::max();

std::vector<std::uint32_t> callees(const RuleSet& rules, std::uint32_t id) {
  const RuleSet::Rule& rule = rules.rules[id];
  if (rule.counted) return {index(rule.item)};
  std::vector<std::uint32_t> out;
  for (std::uint32_t state = rule.start; state < rule.end; ++state) {
    for (const RuleSet::Call& call : rules.calls(state)) out.push_back(index(call.rule));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

class CircleFinder {  // strongly connected components, callees first (Tarjan), without recursion
 public:
  explicit CircleFinder(const RuleSet& rules)
      : rules_(rules), order_(rules.rules.size(), kUnvisited), low_(rules.rules.size()), open_(rules.rules.size()) {}

  template <class OnCircle>
  void run(OnCircle on_circle) {
    for (std::uint32_t i = 0; i < order_.size(); ++i) {
      if (order_[i] == kUnvisited) visit(i, on_circle);
    }
  }

 private:
  struct Visit {
    std::uint32_t rule;
    std::vector<std::uint32_t> callees;
    std::size_t next = 0;
  };

  Visit enter(std::uint32_t rule) {
    order_[rule] = low_[rule] = next_order_++;
    open_[rule] = true;
    stack_.push_back(rule);
    return {rule, callees(rules_, rule)};
  }

  template <class OnCircle>
  void visit(std::uint32_t from, OnCircle on_circle) {
    std::vector<Visit> path{enter(from)};
    while (!path.empty()) {
      Visit& top = path.back();
      if (top.next < top.callees.size()) {
        const std::uint32_t callee = top.callees[top.next++];
        if (order_[callee] == kUnvisited) {
          path.push_back(enter(callee));
        } else if (open_[callee]) {
          low_[top.rule] = std::min(low_[top.rule], order_[callee]);
        }
        continue;
      }
      const std::uint32_t rule = top.rule;
      path.pop_back();
      if (!path.empty()) low_[path.back().rule] = std::min(low_[path.back().rule], low_[rule]);
      if (low_[rule] != order_[rule]) continue;
      std::vector<std::uint32_t> circle;
      do {
        circle.push_back(stack_.back());
        open_[stack_.back()] = false;
        stack_.pop_back();
      } while (circle.back() != rule);
      std::sort(circle.begin(), circle.end());
      on_circle(circle);
    }
  }

  const RuleSet& rules_;
  std::vector<std::uint32_t> order_, low_, stack_;
  std::vector<bool> open_;
  std::uint32_t next_order_ = 0;
};

void hash_callee(base::Sha256& hash, const RuleSet& rules, const std::vector<std::uint32_t>& circle, RuleId callee) {
  const auto member = std::lower_bound(circle.begin(), circle.end(), index(callee));
  if (member != circle.end() && *member == index(callee)) {
    hash.update_u32_le(static_cast<std::uint32_t>(member - circle.begin()));
  } else {
    hash.update("rule").update(std::as_bytes(std::span(rules.rule(callee).digest)));
  }
}

void hash_rule(base::Sha256& hash, const RuleSet& rules, const std::vector<std::uint32_t>& circle, std::uint32_t id) {
  const RuleSet::Rule& rule = rules.rules[id];
  hash.update_u32_le(rule.counted);
  if (rule.counted) {
    hash.update_u32_le(rule.bounds.min).update_u32_le(rule.bounds.max);
    hash_callee(hash, rules, circle, rule.item);
    return;
  }
  hash.update_u32_le(rule.end - rule.start);
  for (std::uint32_t state = rule.start; state < rule.end; ++state) {
    hash.update_u32_le(rules.states[state].accepts);
    hash.update_u32_le(static_cast<std::uint32_t>(rules.edges(state).size()));
    for (const RuleSet::Edge& edge : rules.edges(state)) {
      hash.update_u32_le(edge.first).update_u32_le(edge.last).update_u32_le(edge.to - rule.start);
    }
    hash.update_u32_le(static_cast<std::uint32_t>(rules.calls(state).size()));
    for (const RuleSet::Call& call : rules.calls(state)) {
      hash_callee(hash, rules, circle, call.rule);
      hash.update_u32_le(call.to - rule.start);
    }
  }
}

}  // namespace

void set_digests(RuleSet& rules) {
  CircleFinder(rules).run([&](const std::vector<std::uint32_t>& circle) {
    base::Sha256 all;
    for (const std::uint32_t id : circle) hash_rule(all, rules, circle, id);
    for (std::uint32_t member = 0; member < circle.size(); ++member) {
      base::Sha256 own = all;
      const base::Sha256Digest digest = own.update_u32_le(member).digest();
      std::copy_n(digest.begin(), 16, rules.rules[circle[member]].digest.begin());
    }
  });
}

}  // namespace llorch::grammar::ir
