#include "grammar/matcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"
#include "grammar/control_token.h"

namespace llorch::grammar {
namespace {

using base::ErrorCode;
using base::fail;

void set(std::span<std::uint32_t> words, TokenId id) { words[base::index(id) / 32] |= 1u << base::index(id) % 32; }

void add(std::span<std::uint32_t> words, std::span<const std::uint32_t> more) {
  for (std::size_t i = 0; i < more.size(); ++i) words[i] |= more[i];
}

void group_by_byte(PlaceMask::Layer& layer, const TokenTrie::Tier& tier) {
  std::array<std::uint32_t, 257> ends{};  // of the groups before each byte's, then of its own
  for (const std::uint32_t node : layer.open_nodes) ++ends[tier.nodes[node].byte + 1u];
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (ends[byte + 1] != 0) layer.groups.push_back({static_cast<std::uint8_t>(byte), ends[byte]});
    ends[byte + 1] += ends[byte];
  }
  std::vector<std::uint32_t> sorted(layer.open_nodes.size());
  for (const std::uint32_t node : layer.open_nodes) sorted[ends[tier.nodes[node].byte]++] = node;
  layer.open_nodes = std::move(sorted);
}

tl::unexpected<base::Error> too_ambiguous() {
  return fail(ErrorCode::kInvalidParams,
              fmt::format("the grammar can be read in more than {} ways at once, or takes more than {} moves for one "
                          "byte; make its alternatives more distinct",
                          Configurations::kItemsMax, Configurations::kMovesMax));
}

tl::unexpected<base::Error> too_deep() {
  return fail(ErrorCode::kInvalidParams,
              fmt::format("the output leaves more than {} rules of the grammar open at once; make it nest less, or its "
                          "alternatives more distinct",
                          Configurations::kAliveMax));
}

tl::unexpected<base::Error> too_costly() {
  return fail(
      ErrorCode::kInvalidParams,
      fmt::format("the grammar takes more than {} steps to tell which tokens may come next; make its alternatives "
                  "more distinct, or fewer and shorter",
                  Matcher::kMaskStepsMax));
}

}  // namespace

base::Result<Matcher> Matcher::create(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie) {
  const ir::RuleSet& rules = grammar->rules();
  for (const TokenId id : rules.control_tokens) {
    if (trie->is_control(id)) continue;
    return fail(
        ErrorCode::kInvalidParams,
        fmt::format("the grammar names token {}, which is no control token of the model, or one that ends a generation",
                    base::index(id)));
  }
  auto completable = std::make_shared<std::vector<bool>>();
  const std::bitset<256> bytes = trie->single_bytes() | control_bytes();  // every control token it names is there
  if ((rules.used_bytes & ~bytes).any()) *completable = ir::completable_states(rules, bytes);
  Matcher matcher(std::move(grammar), std::move(trie), std::move(completable));
  if (matcher.at_ == kOverflowedConfiguration) return too_ambiguous();
  if (!matcher.configurations_->is_completable(matcher.at_)) {
    return fail(ErrorCode::kInvalidParams, "the model's vocabulary has no tokens for the bytes the grammar asks for");
  }
  return matcher;
}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                 std::shared_ptr<const std::vector<bool>> completable)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), completable_(std::move(completable)) {
  const std::shared_ptr<const ir::RuleSet> rules(grammar_, &grammar_->rules());
  configurations_ = std::make_shared<Configurations>(rules, completable_);
  at_ = configurations_->start();
}

void Matcher::make_room(std::span<ConfigurationId> more) {
  const bool words_are_current = words_of_ == at_;
  std::vector<ConfigurationId*> roots{&at_};
  for (ConfigurationId& id : more) roots.push_back(&id);
  configurations_ = configurations_->extract(roots);
  words_of_ = words_are_current ? at_ : kDeadConfiguration;
}

base::Result<> Matcher::spend(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ > kMaskStepsMax) return too_costly();
  return {};
}

// Visits the nodes below `from` that are not dead when the configuration at `from` is `at`, in order.
template <class OnNode, class OnFull>
base::Result<> Matcher::walk(const std::shared_ptr<Configurations>& within, const TokenTrie::Tier& tier,
                             std::uint32_t from, ConfigurationId at, OnNode on_node, OnFull on_full) {
  if (at == kOverflowedConfiguration) return too_ambiguous();
  const std::size_t base_depth = tier.nodes[from].depth;
  if (tier.nodes[from].end == from + 1) return {};
  path_.resize(tier.depth + 1);
  path_[base_depth] = at;
  const std::uint32_t end = tier.nodes[from].end;
  for (std::uint32_t i = from + 1; i < end;) {
    const TokenTrie::Node& node = tier.nodes[i];
    const ConfigurationId before = path_[node.depth - 1u];
    const ConfigurationId to = within->step(before, node.byte);
    TRY(spend(1 + within->charge(before, node.byte)));
    if (to == kDeadConfiguration) {
      i = node.end;
      continue;
    }
    if (to == kOverflowedConfiguration) return too_ambiguous();
    path_[node.depth] = to;
    on_node(i, to);
    TRY(on_full(std::span(path_).subspan(base_depth, node.depth + 1u - base_depth)));
    ++i;
  }
  return {};
}

// A token of n bytes begins at most n items of a repetition, so layers go no further than the longest token.
base::Result<PlaceMask> Matcher::compute_place_mask(ir::Place place, const TokenTrie::Tier& tier) {
  const ir::RuleSet& rules = grammar_->rules();
  const bool counts = rules.rule_of(place).counted;
  if (counts) place = {rules.rule(rules.rule_of(place).ruler).start, 0};
  PlaceMask mask;
  const std::uint64_t steps_before = steps_;
  // In configurations of their own, so that the steps do not depend on what this matcher has read.
  auto local = std::make_shared<Configurations>(std::shared_ptr<const ir::RuleSet>(grammar_, &rules), completable_);
  const auto make_room = [&](std::span<ConfigurationId> path) -> base::Result<> {
    if (!local->is_full()) return {};
    std::vector<ConfigurationId*> roots;
    for (ConfigurationId& id : path) roots.push_back(&id);
    local = local->extract(roots);
    return {};
  };
  mask.layers.resize(counts ? tier.depth + 1 : 1);
  std::size_t count = 0;
  const auto add_node = [&](std::uint32_t node, ConfigurationId at) {
    PlaceMask::Layer& layer = mask.layers[counts ? local->outer_count(at) : 0];
    const std::span<const TokenId> tokens = tier.tokens(node);
    if (!tokens.empty() && local->is_completable(at)) {
      layer.ids.insert(layer.ids.end(), tokens.begin(), tokens.end());
      count += tokens.size();
    }
    // Between two items a counting rule may be over; whether it is depends on its bounds.
    const bool may_be_over = counts ? local->stands_at(at, place.state) : local->leaves(at);
    if (!may_be_over) return;
    for (std::uint32_t child = node + 1; child < tier.nodes[node].end; child = tier.nodes[child].end) {
      layer.open_nodes.push_back(child);
    }
  };
  TRY(walk(local, tier, 0, local->local(place), add_node, make_room));
  mask.steps = steps_ - steps_before;
  const bool is_dense = count >= trie_->mask_words() * mask.layers.size();
  std::vector<std::uint32_t> words(trie_->mask_words());
  for (PlaceMask::Layer& layer : mask.layers) {
    if (is_dense) {
      for (const TokenId id : layer.ids) set(words, id);
      layer.words = words;
      layer.ids = {};
    }
    layer.ids.shrink_to_fit();
    group_by_byte(layer, tier);
  }
  return mask;
}

base::Result<std::shared_ptr<const PlaceMask>> Matcher::place_mask(ir::Place place, std::size_t tier) {
  const ir::RuleSet& rules = grammar_->rules();
  const ir::RuleSet::Rule& rule = rules.rule_of(place);
  PlaceKey key{.rule = rule.digest, .state = place.state - rule.start, .tier = static_cast<std::uint32_t>(tier)};
  if (rule.counted) key.rule = rules.rule(rule.ruler).digest;
  std::shared_ptr<const PlaceMask>& mask = place_masks_[key];
  if (mask) return mask;
  mask = trie_->mask_cache().find(key);
  if (mask) {
    TRY(spend(mask->steps));  // as when it was computed: the outcome does not depend on what the cache holds
    return mask;
  }
  mask = std::make_shared<const PlaceMask>(TRY(compute_place_mask(place, trie_->tiers()[tier])));
  trie_->mask_cache().insert(key, mask);
  return mask;
}

base::Result<> Matcher::add_item(std::size_t number) {
  const ir::RuleSet& rules = grammar_->rules();
  const ir::Place place = configurations_->items(at_)[number].place;
  const ir::RuleSet::Rule& rule = rules.rule_of(place);
  const std::size_t missing = rule.counted ? rule.bounds.min - std::min(rule.bounds.min, place.count) : 0;
  const bool is_bounded = rule.counted && rule.bounds.max != ir::kUnbounded;
  for (std::size_t tier = 0; tier < TokenTrie::kTiers; ++tier) {
    if (trie_->tiers()[tier].ids.empty()) continue;
    const std::shared_ptr<const PlaceMask> mask = TRY(place_mask(place, tier));
    std::size_t last = mask->layers.size() - 1;
    if (is_bounded) last = std::min<std::size_t>(last, rule.bounds.max - place.count);
    const bool is_completable = configurations_->is_completable(configurations_->items(at_)[number].frame);
    if (is_completable) add(words_, mask->layers[last].words);
    for (std::size_t i = 0; i <= last; ++i) {
      const PlaceMask::Layer& layer = mask->layers[i];
      if (is_completable) {
        for (const TokenId id : layer.ids) set(words_, id);
      }
      if (i >= missing) TRY(add_open_nodes(number, tier, layer));
    }
  }
  return {};
}

// Tokens that go on after the rule of a reading is over.
base::Result<> Matcher::add_open_nodes(std::size_t number, std::size_t tier, const PlaceMask::Layer& layer) {
  if (layer.groups.empty()) return {};
  const TokenTrie::Tier& of = trie_->tiers()[tier];
  // Where the caller stands behind the rule and one byte more.
  std::array<ConfigurationId, 256> begun{};
  const auto begin = [&]() -> base::Result<> {
    const ConfigurationId over = configurations_->returned(configurations_->items(at_)[number].frame);
    TRY(spend(configurations_->return_charge()));
    if (over == kOverflowedConfiguration) return too_ambiguous();
    for (const PlaceMask::Layer::Group& group : layer.groups) {
      begun[group.byte] = configurations_->step(over, group.byte);
      TRY(spend(1 + configurations_->charge(over, group.byte)));
      if (begun[group.byte] == kOverflowedConfiguration) return too_ambiguous();
    }
    return {};
  };
  // The steps that are counted must not depend on what was forgotten when: where room is made in a mask, it begins with nothing but
  // where the output stands.
  const auto make_room_for = [&](std::span<ConfigurationId> path) -> base::Result<> {
    if (is_fresh_ ? !configurations_->is_full() : !configurations_->is_nearly_full()) return {};
    is_forced_ = !is_fresh_;
    if (is_forced_) return fail(ErrorCode::kInternal, "the mask begins again");
    make_room(path);
    return begin();
  };
  TRY(begin());
  std::vector<std::uint32_t> nodes;
  for (std::size_t i = 0; i < layer.groups.size(); ++i) {
    if (begun[layer.groups[i].byte] == kDeadConfiguration) continue;
    const std::span<const std::uint32_t> group = layer.group(i);
    nodes.insert(nodes.end(), group.begin(), group.end());
  }
  if (nodes.empty()) return {};
  TRY(spend(of.nodes.size() / 1024));  // of what follows that does not depend on how many they are
  std::ranges::sort(nodes);
  // Nodes below one that a walk came to as if the caller had begun there: that walk has added their tokens.
  std::vector<bool> covered(of.nodes.size());
  const auto add_tokens = [&](std::uint32_t node, ConfigurationId at) {
    if (at == begun[of.nodes[node].byte]) covered[node] = true;
    if (!configurations_->is_completable(at)) return;
    for (const TokenId id : of.tokens(node)) set(words_, id);
  };
  for (const std::uint32_t node : nodes) {
    TRY(spend(1));
    if (covered[node]) continue;
    const ConfigurationId at = begun[of.nodes[node].byte];
    add_tokens(node, at);
    TRY(walk(configurations_, of, node, at, add_tokens, make_room_for));
  }
  return {};
}

base::Result<> Matcher::compute_words() {
  steps_ = 0;
  is_forced_ = false;
  place_masks_.clear();
  configurations_->begin_count();
  words_.assign(trie_->mask_words(), 0);
  const std::size_t count = ended_ ? 0 : configurations_->items(at_).size();
  for (std::size_t i = 0; i < count; ++i) TRY(add_item(i));
  if (is_complete()) {
    for (const TokenId id : trie_->end_ids()) set(words_, id);
  }
  return {};
}

base::Result<std::span<const std::uint32_t>> Matcher::mask() {
  if (refused_ && !ended_) return fail(*refused_);
  is_fresh_ = configurations_->is_full();
  if (is_fresh_) make_room({});
  if (words_of_ != at_ || ended_) {
    words_of_ = kDeadConfiguration;
    base::Result<> computed = compute_words();
    if (!computed && is_forced_) {
      make_room({});
      is_fresh_ = true;
      computed = compute_words();
    }
    place_masks_.clear();
    if (!computed) {
      refused_ = computed.error();
      return fail(computed.error());
    }
    words_of_ = at_;
  }
  return std::span<const std::uint32_t>(words_);
}

// Dead where mask() would not allow the token.
ConfigurationId Matcher::after(TokenId id) {
  ASSERT(base::index(id) < trie_->vocab_size(), "{}", base::index(id));
  const std::string_view bytes = trie_->bytes(id);
  if (bytes.empty() || ended_) return kDeadConfiguration;
  ConfigurationId at = at_;
  for (const char c : bytes) {
    if (configurations_->is_full()) make_room({&at, 1});
    at = configurations_->step(at, static_cast<std::uint8_t>(c));
    if (at == kDeadConfiguration || at == kOverflowedConfiguration) return at;
  }
  return configurations_->is_completable(at) ? at : kDeadConfiguration;
}

base::Result<bool> Matcher::allows(TokenId id) {
  if (trie_->is_end(id)) return is_complete();
  const ConfigurationId at = after(id);
  if (at == kOverflowedConfiguration) return too_ambiguous();
  return at != kDeadConfiguration;
}

base::Result<> Matcher::accept(TokenId id) {
  if (trie_->is_end(id) && is_complete()) {
    ended_ = true;
    return {};
  }
  ConfigurationId at = trie_->is_end(id) ? kDeadConfiguration : after(id);
  if (at == kOverflowedConfiguration) return too_ambiguous();
  if (at == kDeadConfiguration) return fail(ErrorCode::kInvalidParams, "the grammar does not allow this token here");
  if (configurations_->items_kept() > Configurations::kAliveMax) {
    ConfigurationId* const root = &at;
    std::shared_ptr<Configurations> alive = configurations_->extract({&root, 1});
    if (alive->items_kept() > Configurations::kAliveMax) return too_deep();
    configurations_ = std::move(alive);
    words_of_ = kDeadConfiguration;
  }
  at_ = at;
  refused_.reset();
  return {};
}

}  // namespace llorch::grammar
