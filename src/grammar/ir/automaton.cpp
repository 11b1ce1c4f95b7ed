#include "grammar/ir/automaton.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/assert.h"
#include "base/keyed_hash.h"

namespace llorch::grammar::ir {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Neighbouring ranges that lead to one state become one edge.
void append_edge(std::vector<Dfa::Edge>& edges, Dfa::Edge edge) {
  if (!edges.empty() && edges.back().to == edge.to && edges.back().last + 1 == edge.first) {
    edges.back().last = edge.last;
  } else {
    edges.push_back(edge);
  }
}

std::size_t row_hash(const Dfa::State& state) {
  static_assert(std::has_unique_object_representations_v<Dfa::Edge>);
  const std::span<const Dfa::Edge> edges = state.edges;
  return base::KeyedHash{}(std::string_view(reinterpret_cast<const char*>(edges.data()), edges.size_bytes())) ^
         std::size_t{state.accepts};
}

// Successors before their predecessors, where there are no cycles.
std::vector<std::uint32_t> post_order(const Dfa& dfa) {
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(dfa.states.size());
  std::vector<std::pair<std::uint32_t, std::size_t>> path{{0, 0}};
  seen[0] = true;
  while (!path.empty()) {
    auto& [state, next] = path.back();
    const auto& edges = dfa.states[state].edges;
    if (next == edges.size()) {
      order.push_back(state);
      path.pop_back();
      continue;
    }
    const std::uint32_t to = edges[next++].to;
    if (!seen[to]) {
      seen[to] = true;
      path.emplace_back(to, 0);
    }
  }
  return order;
}

std::size_t size_of(const Dfa& dfa) {
  std::size_t size = dfa.states.size();
  for (const Dfa::State& state : dfa.states) size += state.edges.size();
  return size;
}

// Keeps the states that are reachable and reach acceptance (and the start), numbered in depth-first order. Worthless once the work
// is over.
Dfa trim(const Dfa& dfa, Work& work_done) {
  work_done.spend(size_of(dfa));
  if (work_done.is_over()) return {};
  std::vector<std::vector<std::uint32_t>> sources(dfa.states.size());
  std::vector<std::uint32_t> work;
  std::vector<bool> useful(dfa.states.size());
  for (std::uint32_t state = 0; state < dfa.states.size(); ++state) {
    for (const Dfa::Edge& edge : dfa.states[state].edges) sources[edge.to].push_back(state);
    if (dfa.states[state].accepts) {
      useful[state] = true;
      work.push_back(state);
    }
  }
  while (!work.empty()) {
    const std::uint32_t state = work.back();
    work.pop_back();
    for (const std::uint32_t source : sources[state]) {
      if (useful[source]) continue;
      useful[source] = true;
      work.push_back(source);
    }
  }
  std::vector<std::uint32_t> number(dfa.states.size(), kNone);
  std::vector<std::uint32_t> kept{0};
  number[0] = 0;
  Dfa out;
  for (std::size_t at = 0; at < kept.size(); ++at) {
    Dfa::State state{{}, dfa.states[kept[at]].accepts};
    for (const Dfa::Edge& edge : dfa.states[kept[at]].edges) {
      if (!useful[edge.to]) continue;
      if (number[edge.to] == kNone) {
        number[edge.to] = static_cast<std::uint32_t>(kept.size());
        kept.push_back(edge.to);
      }
      append_edge(state.edges, {edge.first, edge.last, number[edge.to]});
    }
    out.states.push_back(std::move(state));
  }
  return out;
}

// Merges states with equal rows until nothing changes. One pass settles everything outside of cycles; equivalent states
// within different cycles may stay apart, which costs space and never a wrong answer. Nothing once `work` is over.
std::optional<Dfa> merge_equal_rows(Dfa dfa, Work& work) {
  constexpr int kPassesMax = 4;
  for (int pass = 0; pass < kPassesMax && !work.is_over(); ++pass) {
    work.spend(size_of(dfa));
    std::map<std::size_t, std::vector<std::uint32_t>> by_hash;
    std::vector<std::uint32_t> replacement(dfa.states.size(), kNone);
    bool changed = false;
    for (const std::uint32_t state : post_order(dfa)) {
      if (state == 0) continue;  // the start keeps its number
      Dfa::State& row = dfa.states[state];
      std::vector<Dfa::Edge> edges;
      for (Dfa::Edge edge : row.edges) {
        if (replacement[edge.to] != kNone) edge.to = replacement[edge.to];
        append_edge(edges, edge);
      }
      row.edges = std::move(edges);
      auto& equals = by_hash[row_hash(row)];
      const auto duplicate = std::find_if(equals.begin(), equals.end(), [&](auto s) { return dfa.states[s] == row; });
      if (duplicate == equals.end()) {
        equals.push_back(state);
        replacement[state] = state;
      } else {
        replacement[state] = *duplicate;
        changed = true;
      }
    }
    for (Dfa::State& row : dfa.states) {
      for (Dfa::Edge& edge : row.edges) {
        if (replacement[edge.to] != kNone) edge.to = replacement[edge.to];
      }
    }
    dfa = trim(dfa, work);
    if (!changed) break;
  }
  if (work.is_over()) return std::nullopt;
  return dfa;
}

using StateSet = std::vector<std::uint32_t>;

class SubsetConstruction {
 public:
  SubsetConstruction(const Nfa& nfa, std::size_t states_max, Work& work)
      : nfa_(nfa), states_max_(states_max), marked_at_(nfa.states.size()), work_(work) {}

  std::optional<Dfa> run() {
    number_of(closure({nfa_.start}));
    for (std::size_t at = 0; at < sets_.size(); ++at) {
      if (sets_.size() > states_max_ || work_.is_over()) return std::nullopt;
      expand(at);
    }
    if (work_.is_over()) return std::nullopt;
    return merge_equal_rows(trim(dfa_, work_), work_);
  }

 private:
  // Only states that have edges or accept say anything about the future.
  StateSet closure(std::vector<std::uint32_t> work) {
    constexpr std::size_t kVisitsPerStep = 8;
    ++mark_;
    std::size_t visits = 0;
    StateSet out;
    for (const std::uint32_t state : work) marked_at_[state] = mark_;
    while (!work.empty()) {
      const std::uint32_t state = work.back();
      work.pop_back();
      visits += 1 + nfa_.states[state].epsilons.size();
      if (!nfa_.states[state].edges.empty() || state == nfa_.accept) out.push_back(state);
      for (const std::uint32_t to : nfa_.states[state].epsilons) {
        if (marked_at_[to] == mark_) continue;
        marked_at_[to] = mark_;
        work.push_back(to);
      }
    }
    std::sort(out.begin(), out.end());
    work_.spend(out.size() + visits / kVisitsPerStep);
    return out;
  }

  std::uint32_t number_of(StateSet set) {
    const auto [it, added] = numbers_.try_emplace(std::move(set), static_cast<std::uint32_t>(sets_.size()));
    if (added) {
      sets_.push_back(&it->first);
      dfa_.states.emplace_back();
      dfa_.states.back().accepts = std::binary_search(it->first.begin(), it->first.end(), nfa_.accept);
    }
    return it->second;
  }

  // Breaks off once the work is over.
  void expand(std::size_t at) {
    std::vector<Nfa::Edge> edges;
    std::vector<Symbol> cuts;  // where the set of edges that apply changes
    for (const std::uint32_t state : *sets_[at]) {
      for (const Nfa::Edge& edge : nfa_.states[state].edges) {
        edges.push_back(edge);
        cuts.push_back(edge.first);
        cuts.push_back(edge.last + 1);
      }
    }
    std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Nfa::Edge> open;
    std::size_t next = 0;
    std::vector<Dfa::Edge> row;
    for (std::size_t i = 0; i + 1 < cuts.size() && !work_.is_over(); ++i) {
      std::erase_if(open, [&](const auto& edge) { return edge.last < cuts[i]; });
      while (next < edges.size() && edges[next].first == cuts[i]) open.push_back(edges[next++]);
      work_.spend(1 + open.size());
      if (open.empty()) continue;
      std::vector<std::uint32_t> targets;
      for (const Nfa::Edge& edge : open) targets.push_back(edge.to);
      std::sort(targets.begin(), targets.end());
      targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      append_edge(row, {cuts[i], cuts[i + 1] - 1, number_of(closure(std::move(targets)))});
    }
    row.shrink_to_fit();
    dfa_.states[at].edges = std::move(row);
  }

  const Nfa& nfa_;
  const std::size_t states_max_;
  Dfa dfa_;
  std::map<StateSet, std::uint32_t> numbers_;
  std::vector<const StateSet*> sets_;
  std::vector<std::uint32_t> marked_at_;
  std::uint32_t mark_ = 0;
  Work& work_;
};

enum class Product { kBoth, kFirstOnly };

// Runs both automata side by side; kNone is the dead state of `b`.
std::optional<Dfa> product(const Dfa& a, const Dfa& b, Product kind, std::size_t states_max, Work& work) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  Dfa out;
  const auto number_of = [&](std::uint32_t in_a, std::uint32_t in_b) {
    const auto [it, added] = numbers.try_emplace({in_a, in_b}, static_cast<std::uint32_t>(pairs.size()));
    if (added) {
      pairs.emplace_back(in_a, in_b);
      const bool b_accepts = in_b != kNone && b.states[in_b].accepts;
      out.states.push_back({{}, a.states[in_a].accepts && (kind == Product::kBoth ? b_accepts : !b_accepts)});
    }
    return it->second;
  };
  number_of(0, 0);
  static const std::vector<Dfa::Edge> kNoEdges;
  for (std::size_t at = 0; at < pairs.size(); ++at) {
    if (pairs.size() > states_max || work.is_over()) return std::nullopt;
    work.spend(1);
    const auto [in_a, in_b] = pairs[at];
    const std::vector<Dfa::Edge>& b_edges = in_b == kNone ? kNoEdges : b.states[in_b].edges;
    std::vector<Dfa::Edge> row;
    auto next = b_edges.begin();
    for (const Dfa::Edge& edge : a.states[in_a].edges) {
      Symbol from = edge.first;
      bool rest = true;  // [from, edge.last] not yet covered
      work.spend(1);
      for (; next != b_edges.end() && next->last < from; ++next) work.spend(1);
      for (auto at_b = next; at_b != b_edges.end() && at_b->first <= edge.last; ++at_b) {
        const Dfa::Edge& other = *at_b;
        work.spend(1);
        if (other.first > from && kind == Product::kFirstOnly) {
          append_edge(row, {from, other.first - 1, number_of(edge.to, kNone)});
        }
        const Symbol first = std::max(from, other.first), last = std::min(edge.last, other.last);
        append_edge(row, {first, last, number_of(edge.to, other.to)});
        rest = last < edge.last;
        if (!rest) break;
        from = last + 1;
      }
      if (rest && kind == Product::kFirstOnly) append_edge(row, {from, edge.last, number_of(edge.to, kNone)});
    }
    row.shrink_to_fit();
    out.states[at].edges = std::move(row);
  }
  return merge_equal_rows(trim(out, work), work);
}

}  // namespace

SymbolSet normalise(std::vector<SymbolRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  SymbolSet out;
  for (const SymbolRange& range : ranges) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

SymbolSet complement(const SymbolSet& set, SymbolRange universe) {
  SymbolSet out;
  Symbol from = universe.first;
  for (const SymbolRange& range : intersection(set, {universe})) {
    if (range.first > from) out.push_back({from, range.first - 1});
    from = range.last + 1;
  }
  if (from <= universe.last) out.push_back({from, universe.last});
  return out;
}

SymbolSet intersection(const SymbolSet& a, const SymbolSet& b) {
  SymbolSet out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Symbol first = std::max(a[i].first, b[j].first), last = std::min(a[i].last, b[j].last);
    if (first <= last) out.push_back({first, last});
    if (a[i].last < b[j].last) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

std::optional<std::uint32_t> Dfa::step(std::uint32_t state, Symbol symbol) const {
  const std::vector<Edge>& edges = states[state].edges;
  const auto edge = std::partition_point(edges.begin(), edges.end(), [&](const Edge& e) { return e.last < symbol; });
  if (edge == edges.end() || symbol < edge->first) return std::nullopt;
  return edge->to;
}

bool Dfa::contains(std::span<const Symbol> word) const {
  std::uint32_t state = 0;
  for (const Symbol symbol : word) {
    const auto to = step(state, symbol);
    if (!to) return false;
    state = *to;
  }
  return states[state].accepts;
}

std::optional<Dfa> determinise(const Nfa& nfa, std::size_t states_max, Work* work) {
  Work own;
  return SubsetConstruction(nfa, states_max, work ? *work : own).run();
}

std::optional<Dfa> intersect(const Dfa& a, const Dfa& b, std::size_t states_max, Work* work) {
  Work own;
  return product(a, b, Product::kBoth, states_max, work ? *work : own);
}

std::optional<Dfa> unite(const Dfa& a, const Dfa& b, std::size_t states_max, Work* work) {
  Nfa nfa;
  nfa.start = nfa.add_state();
  nfa.accept = nfa.add_state();
  insert(nfa, to_nfa(a), nfa.start, nfa.accept);
  insert(nfa, to_nfa(b), nfa.start, nfa.accept);
  return determinise(nfa, states_max, work);
}

std::optional<Dfa> subtract(const Dfa& a, const Dfa& b, std::size_t states_max, Work* work) {
  Work own;
  return product(a, b, Product::kFirstOnly, states_max, work ? *work : own);
}

std::optional<Dfa> explore(std::int64_t start, std::string_view alphabet,
                           const std::function<std::int64_t(std::int64_t, char)>& step,
                           const std::function<bool(std::int64_t)>& accepts, std::size_t states_max, Work* work) {
  Work own;
  Work& done = work ? *work : own;
  ASSERT(std::is_sorted(alphabet.begin(), alphabet.end()));
  std::map<std::int64_t, std::uint32_t> numbers{{start, 0}};
  std::vector<std::int64_t> found{start};
  Dfa dfa;
  for (std::size_t at = 0; at < found.size(); ++at) {
    if (found.size() > states_max || done.is_over()) return std::nullopt;
    done.spend(1 + alphabet.size());
    Dfa::State state{{}, accepts(found[at])};
    for (const char c : alphabet) {
      const std::int64_t to = step(found[at], c);
      if (to < 0) continue;
      const auto [it, added] = numbers.try_emplace(to, static_cast<std::uint32_t>(found.size()));
      if (added) found.push_back(to);
      const Symbol symbol = static_cast<unsigned char>(c);
      append_edge(state.edges, {symbol, symbol, it->second});
    }
    dfa.states.push_back(std::move(state));
  }
  return merge_equal_rows(trim(dfa, done), done);
}

void insert(Nfa& nfa, const Nfa& part, std::uint32_t from, std::uint32_t to) {
  const auto base = static_cast<std::uint32_t>(nfa.states.size());
  for (Nfa::State state : part.states) {
    for (Nfa::Edge& edge : state.edges) edge.to += base;
    for (std::uint32_t& target : state.epsilons) target += base;
    nfa.states.push_back(std::move(state));
  }
  nfa.states[from].epsilons.push_back(base + part.start);
  nfa.states[base + part.accept].epsilons.push_back(to);
}

Nfa to_nfa(const Dfa& dfa) {
  Nfa nfa;
  nfa.states.resize(dfa.states.size() + 1);
  nfa.accept = static_cast<std::uint32_t>(dfa.states.size());
  for (std::size_t i = 0; i < dfa.states.size(); ++i) {
    for (const Dfa::Edge& edge : dfa.states[i].edges) nfa.states[i].edges.push_back({edge.first, edge.last, edge.to});
    if (dfa.states[i].accepts) nfa.states[i].epsilons.push_back(nfa.accept);
  }
  return nfa;
}

}  // namespace llorch::grammar::ir
