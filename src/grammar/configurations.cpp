#include "grammar/configurations.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/assert.h"
#include "base/keyed_hash.h"

namespace llorch::grammar {
namespace {

// Grammars are chosen by tenants, and so are their lists.
std::size_t hash_of(std::span<const Item> list) {
  static_assert(std::has_unique_object_representations_v<Item>);
  return base::KeyedHash{}(std::string_view(reinterpret_cast<const char*>(list.data()), list.size_bytes()));
}

}  // namespace

std::pair<std::uint32_t, bool> Configurations::Lists::intern(std::span<const Item> list) {
  const std::size_t hash = hash_of(list);
  const auto [first, last] = numbers_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (std::ranges::equal((*this)[it->second], list)) return {it->second, false};
  }
  const auto number = static_cast<std::uint32_t>(size());
  items_.insert(items_.end(), list.begin(), list.end());
  offsets_.push_back(static_cast<std::uint32_t>(items_.size()));
  numbers_.emplace(hash, number);
  return {number, true};
}

Configurations::Configurations(std::shared_ptr<const ir::RuleSet> rules,
                               std::shared_ptr<const std::vector<bool>> completable)
    : rules_(std::move(rules)), completable_(std::move(completable)) {
  for (const FrameId frame : {kRootFrame, kOuterFrame}) {
    const Item over{kOver, frame};
    intern_frame({&over, 1});
  }
  intern_configuration({});  // kDeadConfiguration
  const Item nowhere{{0xFFFFFFFF, 0xFFFFFFFF}, kRootFrame};
  intern_configuration({&nowhere, 1});  // kOverflowedConfiguration: a list no step makes
}

bool Configurations::is_completable(const Item& item) const {
  if (item.place == kOver) return true;
  if (!frames_completable_[index(item.frame)]) return false;
  if (completable_->empty()) return true;
  return (*completable_)[item.place.state];
}

FrameId Configurations::intern_frame(std::span<const Item> list) {
  const auto [number, is_new] = frames_.intern(list);
  if (is_new) {
    frames_completable_.push_back(std::ranges::any_of(list, [&](const Item& item) { return is_completable(item); }));
    std::uint32_t count = 0xFFFFFFFF;
    for (const Item& item : list) {
      const bool is_last = item.frame == kOuterFrame || item.frame == kRootFrame;
      count = std::min(count, is_last ? item.place.count : outer_counts_[index(item.frame)]);
    }
    outer_counts_.push_back(count);
  }
  return FrameId{number};
}

ConfigurationId Configurations::intern_configuration(std::span<const Item> list) {
  const auto [number, is_new] = configurations_.intern(list);
  if (is_new) {
    const bool is_real = number > index(kOverflowedConfiguration);
    lists_completable_.push_back(is_real &&
                                 std::ranges::any_of(list, [&](const Item& item) { return is_completable(item); }));
    rows_of_.push_back(kNoRow);
  }
  return ConfigurationId{number};
}

std::span<const Item> Configurations::items(ConfigurationId id) const {
  std::span<const Item> list = configurations_[index(id)];
  while (!list.empty() && list.back().place.state == kOver.state) list = list.first(list.size() - 1);
  return list;
}

bool Configurations::ends_with(ConfigurationId id, FrameId frame) const {
  const std::span<const Item> list = configurations_[index(id)];  // what is over sorts last
  return !list.empty() && std::ranges::any_of(list.last(std::min<std::size_t>(2, list.size())), [&](const Item& item) {
    return item == Item{kOver, frame};
  });
}

std::uint32_t Configurations::outer_count(ConfigurationId id) const {
  std::uint32_t count = 0xFFFFFFFF;
  for (const Item& item : items(id)) {
    count = std::min(count, item.frame == kOuterFrame ? item.place.count : outer_counts_[index(item.frame)]);
  }
  return count;
}

ConfigurationId Configurations::at(Item item) {
  cost_ = 0;
  reached_.assign(1, item);
  return settle();
}

ConfigurationId Configurations::returned(FrameId frame) {
  const std::span<const Item> list = frames_[index(frame)];
  cost_ = list.size();
  reached_.assign(list.begin(), list.end());
  return settle();
}

void Configurations::call(ir::RuleId rule, Item caller) {
  if (overflowed_) return;
  ++calls_;
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(pending_count_);
  auto it = std::find_if(pending_.begin(), end, [&](const PendingCall& other) { return other.rule == rule; });
  if (it == end) {
    if (pending_count_ == pending_.size()) pending_.emplace_back();
    it = pending_.begin() + static_cast<std::ptrdiff_t>(pending_count_++);
    it->rule = rule;
    it->callers.clear();
  }
  if (rules_->is_over(caller.place)) {
    // A call in the last place returns to the caller's caller: loops written as recursion need no stack.
    const std::span<const Item> below = frames_[index(caller.frame)];
    cost_ += below.size();
    it->callers.insert(it->callers.end(), below.begin(), below.end());
  } else {
    it->callers.push_back(caller);
  }
  limit_moves();
  if (it->callers.size() <= kItemsMax) return;
  std::ranges::sort(it->callers);
  it->callers.erase(std::unique(it->callers.begin(), it->callers.end()), it->callers.end());
  if (it->callers.size() > kItemsMax) overflowed_ = true;
}

void Configurations::advance(Item item, std::uint8_t byte) {
  ++cost_;
  if (item.place.state == kOver.state) return;
  const ir::RuleSet::Rule& rule = rules_->rule_of(item.place);
  if (rule.counted) {
    if (item.place.count < rule.bounds.max && rules_->starts_with(rule.item, byte)) {
      call(rule.item, {rules_->counted(item.place), item.frame});
    }
    return;
  }
  const auto edges = rules_->edges(item.place.state);
  const auto edge = std::ranges::lower_bound(edges, byte, {}, &ir::RuleSet::Edge::last);
  if (edge != edges.end() && edge->first <= byte) reached_.push_back({{edge->to, 0}, item.frame});
  const auto calls = rules_->calls(item.place.state);
  cost_ += calls.size();
  limit_moves();
  for (const ir::RuleSet::Call& each : calls) {
    if (rules_->starts_with(each.rule, byte)) call(each.rule, {{each.to, 0}, item.frame});
  }
}

// Returns from every rule that is over, then drops the readings that cannot go on themselves.
ConfigurationId Configurations::settle() {
  std::ranges::sort(reached_);
  reached_.erase(std::unique(reached_.begin(), reached_.end()), reached_.end());
  std::vector<Item>& all = reached_;
  std::uint64_t returns = 0;
  for (std::size_t i = 0; i < all.size() && !overflowed_; ++i) {
    if (all[i].place.state == kOver.state || !rules_->accepts(all[i].place)) continue;
    returns += frames_[index(all[i].frame)].size();
    for (const Item& below : frames_[index(all[i].frame)]) {
      if (std::ranges::find(all, below) == all.end()) all.push_back(below);
    }
    const std::uint64_t cost = returns * (1 + all.size() / kComparisons);
    if (all.size() > 2 * kItemsMax || cost_ + cost > kMovesMax) overflowed_ = true;
  }
  cost_ += returns * (1 + all.size() / kComparisons);
  overflowed_ = overflowed_ || cost_ > kMovesMax;
  std::erase_if(all, [&](const Item& item) { return item.place.state != kOver.state && rules_->is_over(item.place); });
  if (std::exchange(overflowed_, false) || all.size() > kItemsMax) return kOverflowedConfiguration;
  std::ranges::sort(all);
  return intern_configuration(all);
}

ConfigurationId Configurations::compute_step(ConfigurationId from, std::uint8_t byte) {
  reached_.clear();
  pending_count_ = 0;
  cost_ = calls_ = entered_ = 0;
  const std::size_t count = configurations_[index(from)].size();
  for (std::size_t i = 0; i < count && !overflowed_; ++i) advance(configurations_[index(from)][i], byte);
  // Lowest rank first: by the time a rule is entered, every caller of it at this byte is known.
  while (pending_count_ > 0 && !overflowed_) {
    const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(pending_count_);
    const auto next = std::min_element(pending_.begin(), end, [&](const PendingCall& a, const PendingCall& b) {
      return rules_->rule(a.rule).rank < rules_->rule(b.rule).rank;
    });
    std::ranges::sort(next->callers);
    next->callers.erase(std::unique(next->callers.begin(), next->callers.end()), next->callers.end());
    const Item callee{{rules_->rule(next->rule).start, 0}, intern_frame(next->callers)};
    std::swap(*next, pending_[--pending_count_]);
    ++entered_;
    advance(callee, byte);
  }
  // No part of the cost depends on the order of readings or rules, which is not the same in every grammar and after every output:
  // nor does whether it is too much.
  cost_ += comparisons_cost();
  const ConfigurationId to = settle();
  if (to == kOverflowedConfiguration) cost_ = kMovesMax;
  std::uint32_t& row = rows_of_[index(from)];
  if (row == kNoRow) {
    row = static_cast<std::uint32_t>(rows_.size());
    rows_.emplace_back().to.fill(kUnknown);
  }
  rows_[row].to[byte] = to;
  rows_[row].cost_log2[byte] = static_cast<std::uint8_t>(cost_log2());
  return to;
}

std::shared_ptr<Configurations> Configurations::extract(std::span<ConfigurationId* const> roots) const {
  std::vector<bool> live_frames(frames_.size()), live_lists(configurations_.size());
  for (const ConfigurationId* root : roots) live_lists[index(*root)] = true;
  for (std::uint32_t i = 0; i < configurations_.size(); ++i) {
    if (!live_lists[i] || i <= index(kOverflowedConfiguration)) continue;
    for (const Item& item : configurations_[i]) live_frames[index(item.frame)] = true;
  }
  for (auto i = static_cast<std::uint32_t>(frames_.size()); i-- > 0;) {  // a frame is younger than those below it
    if (!live_frames[i]) continue;
    for (const Item& item : frames_[i]) live_frames[index(item.frame)] = true;
  }
  auto out = std::make_shared<Configurations>(rules_, completable_);
  std::vector<FrameId> renamed_frames(frames_.size());
  std::vector<ConfigurationId> renamed(configurations_.size());
  std::vector<Item> list;
  const auto rename = [&](std::span<const Item> items) {
    list.assign(items.begin(), items.end());
    for (Item& item : list) item.frame = renamed_frames[index(item.frame)];
    return std::span<const Item>(list);
  };
  renamed_frames[index(kOuterFrame)] = kOuterFrame;
  for (std::uint32_t i = index(kOuterFrame) + 1; i < frames_.size(); ++i) {
    if (live_frames[i]) renamed_frames[i] = out->intern_frame(rename(frames_[i]));
  }
  renamed[index(kOverflowedConfiguration)] = kOverflowedConfiguration;
  for (std::uint32_t i = index(kOverflowedConfiguration) + 1; i < configurations_.size(); ++i) {
    if (live_lists[i]) renamed[i] = out->intern_configuration(rename(configurations_[i]));
  }
  for (ConfigurationId* root : roots) *root = renamed[index(*root)];
  out->items_max_ = std::max(kItemsKeptMax, 2 * out->items_kept());
  out->lists_max_ = std::max(kListsMax, 2 * std::max(out->frames_.size(), out->configurations_.size()));
  return out;
}

}  // namespace llorch::grammar
