#include "engine/sampling/grammar/matcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::engine::sampling::grammar {
namespace {

using base::ErrorCode;
using base::fail;

void set(std::span<std::uint32_t> words, TokenId id) { words[base::index(id) / 32] |= 1u << base::index(id) % 32; }

void add(std::span<std::uint32_t> words, const PlaceMask& mask) {
  for (std::size_t i = 0; i < mask.words.size(); ++i) words[i] |= mask.words[i];
  for (const TokenId id : mask.ids) set(words, id);
}

tl::unexpected<base::Error> too_ambiguous() {
  return fail(ErrorCode::kInvalidParams,
              fmt::format("the grammar can be read in more than {} ways at once; make its alternatives more distinct",
                          Configurations::kItemsMax));
}

}  // namespace

base::Result<Matcher> Matcher::create(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie) {
  const ir::RuleSet& rules = grammar->rules();
  auto completable = std::make_shared<std::vector<bool>>();
  if ((rules.used_bytes & ~trie->single_bytes()).any()) {
    *completable = ir::completable_states(rules, trie->single_bytes());
  }
  Matcher matcher(std::move(grammar), std::move(trie), std::move(completable));
  if (matcher.at_ == kOverflowedConfiguration) return too_ambiguous();
  if (!matcher.configurations_->is_completable(matcher.at_)) {
    return fail(ErrorCode::kInvalidParams, "the model's vocabulary has no tokens for the bytes the grammar asks for");
  }
  return matcher;
}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                 std::shared_ptr<const std::vector<bool>> completable)
    : grammar_(std::move(grammar)), trie_(std::move(trie)) {
  const std::shared_ptr<const ir::RuleSet> rules(grammar_, &grammar_->rules());
  configurations_ = std::make_shared<Configurations>(rules, std::move(completable));
  at_ = configurations_->start();
}

void Matcher::make_room(std::span<ConfigurationId> more) {
  const bool words_are_current = words_of_ == at_;
  std::vector<ConfigurationId*> roots{&at_};
  for (ConfigurationId& id : more) roots.push_back(&id);
  configurations_ = configurations_->extract(roots);
  words_of_ = words_are_current ? at_ : kDeadConfiguration;
}

// Visits the nodes below `from` that are not dead when the configuration at `from` is `at`, in order.
template <class OnNode>
base::Result<> Matcher::walk(const TokenTrie::Tier& tier, std::uint32_t from, ConfigurationId at, OnNode on_node) {
  if (at == kOverflowedConfiguration) return too_ambiguous();
  const std::size_t base_depth = tier.nodes[from].depth;
  path_.resize(tier.depth + 1);
  path_[base_depth] = at;
  const std::uint32_t end = tier.nodes[from].end;
  for (std::uint32_t i = from + 1; i < end;) {
    const TokenTrie::Node& node = tier.nodes[i];
    const ConfigurationId to = configurations_->step(path_[node.depth - 1u], node.byte);
    if (to == kDeadConfiguration) {
      i = node.end;
      continue;
    }
    if (to == kOverflowedConfiguration) return too_ambiguous();
    path_[node.depth] = to;
    on_node(i, to);
    if (configurations_->is_full()) {
      make_room(std::span(path_).subspan(base_depth, node.depth + 1u - base_depth));
    }
    ++i;
  }
  return {};
}

PlaceKey Matcher::key_of(ir::Place place, std::size_t tier) const {
  const ir::RuleSet& rules = grammar_->rules();
  const ir::RuleSet::Rule& rule = rules.rule_of(place);
  PlaceKey key;
  key.tier = static_cast<std::uint32_t>(tier);
  if (!rule.counted) {
    key.rule = rule.digest;
    key.state = place.state - rule.start;
    return key;
  }
  // An item takes at least a byte, so a token sees no more of them than it has bytes.
  const auto reach = static_cast<std::uint32_t>(trie_->tiers()[tier].depth);
  key.rule = rules.rule(rule.item).digest;
  key.state = 0xFFFFFFFF;
  key.missing = rule.bounds.min - std::min(rule.bounds.min, place.count);
  key.missing = std::min(key.missing, reach);
  key.room = rule.bounds.max == ir::kUnbounded ? reach : std::min(rule.bounds.max - place.count, reach);
  return key;
}

base::Result<PlaceMask> Matcher::compute_place_mask(ir::Place place, const TokenTrie::Tier& tier) {
  PlaceMask mask;
  std::vector<std::uint32_t> words(trie_->mask_words());
  TRY(walk(tier, 0, configurations_->local(place), [&](std::uint32_t node, ConfigurationId at) {
    if (configurations_->is_completable(at)) {
      for (const TokenId id : tier.tokens(node)) mask.ids.push_back(id);
    }
    if (configurations_->leaves(at) && tier.nodes[node].end > node + 1) mask.open_nodes.push_back(node);
  }));
  if (mask.ids.size() >= words.size()) {
    for (const TokenId id : mask.ids) set(words, id);
    mask.words = std::move(words);
    mask.ids = {};
  }
  mask.ids.shrink_to_fit();
  mask.open_nodes.shrink_to_fit();
  return mask;
}

base::Result<std::shared_ptr<const PlaceMask>> Matcher::place_mask(ir::Place place, std::size_t tier) {
  const PlaceKey key = key_of(place, tier);
  if (auto known = trie_->mask_cache().find(key)) return known;
  auto computed = std::make_shared<const PlaceMask>(TRY(compute_place_mask(place, trie_->tiers()[tier])));
  trie_->mask_cache().insert(key, computed);
  return std::shared_ptr<const PlaceMask>(std::move(computed));
}

base::Result<> Matcher::add_item(std::size_t number) {
  const ir::Place place = configurations_->items(at_)[number].place;
  for (std::size_t i = 0; i < TokenTrie::kTiers; ++i) {
    const TokenTrie::Tier& tier = trie_->tiers()[i];
    if (tier.ids.empty()) continue;
    const std::shared_ptr<const PlaceMask> mask = TRY(place_mask(place, i));
    // Read again each time: a walk may have renamed the frames.
    const auto frame = [&] { return configurations_->items(at_)[number].frame; };
    if (configurations_->is_completable(frame())) add(words_, *mask);
    for (const std::uint32_t node : mask->open_nodes) {
      TRY(walk(tier, node, configurations_->returned(frame()), [&](std::uint32_t below, ConfigurationId at) {
        if (!configurations_->is_completable(at)) return;
        for (const TokenId id : tier.tokens(below)) set(words_, id);
      }));
    }
  }
  return {};
}

base::Result<std::span<const std::uint32_t>> Matcher::mask() {
  if (configurations_->is_full()) make_room({});
  if (words_of_ != at_ || ended_) {
    words_of_ = kDeadConfiguration;
    words_.assign(trie_->mask_words(), 0);
    const std::size_t count = ended_ ? 0 : configurations_->items(at_).size();
    for (std::size_t i = 0; i < count; ++i) TRY(add_item(i));
    if (is_complete()) {
      for (const TokenId id : trie_->end_ids()) set(words_, id);
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
  const ConfigurationId at = trie_->is_end(id) ? kDeadConfiguration : after(id);
  if (at == kOverflowedConfiguration) return too_ambiguous();
  if (at == kDeadConfiguration) return fail(ErrorCode::kInvalidParams, "the grammar does not allow this token here");
  at_ = at;
  return {};
}

}  // namespace llorch::engine::sampling::grammar
