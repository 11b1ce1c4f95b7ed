#pragma once
// Where an output stands in its grammar, and which tokens may come next.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "grammar/configurations.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace llorch::grammar {

// One per sequence. A copy is a fork, or a checkpoint to roll back to; the history is shared, so it costs one mask at
// most. Copies share caches without locks: a matcher and its copies are used by one thread at a time.
//
// What mask() returns is a pure function of (grammar, vocabulary, accepted tokens). Every token it allows leaves an
// output that single-byte tokens and control tokens can complete, so a sequence that follows it never runs into a dead end.
class Matcher {
 public:
  // Steps of one mask: nodes of the vocabulary's tree that are visited, and what moving the readings there takes the first time. A
  // mask from the cache counts as if it were computed, so whether the limit is kept depends on grammar, vocabulary and tokens alone.
  static constexpr std::uint64_t kMaskStepsMax = 1 << 24;

  // INVALID_PARAMS when the vocabulary cannot spell any output of the grammar, or lacks a control token that it names.
  static base::Result<Matcher> create(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie);

  // [mask_words] bit `id % 32` of word `id / 32` is set iff the token is allowed; never all zero. End ids are allowed iff
  // is_complete(), and nothing else after one. Valid until the next call on this matcher.
  // INVALID_PARAMS when the grammar is so ambiguous here that more than Configurations::kItemsMax readings are alive or a byte
  // takes more than kMovesMax moves, or when the mask takes more than kMaskStepsMax steps.
  base::Result<std::span<const std::uint32_t>> mask();
  // Whether mask() allows `id`, without computing the rest of it. REQUIRES index(id) < vocab_size().
  base::Result<bool> allows(TokenId id);
  // Appends the token to the output. INVALID_PARAMS, and nothing changes, when mask() does not allow it, when readings that each
  // allow it are too many together or take too many moves, or when more than Configurations::kAliveMax rules are open behind it.
  base::Result<> accept(TokenId id);
  // Whether the output so far is a whole string of the grammar.
  bool is_complete() const { return ended_ || configurations_->accepts(at_); }
  // Whether nothing but an end id can follow.
  bool is_finished() const { return ended_ || configurations_->items(at_).empty(); }
  // What the last mask() that was computed took; for tests and measurements.
  std::uint64_t mask_steps() const { return steps_; }

 private:
  Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
          std::shared_ptr<const std::vector<bool>> completable);

  ConfigurationId after(TokenId id);
  base::Result<> add_item(std::size_t number);
  base::Result<> add_open_nodes(std::size_t number, std::size_t tier, const PlaceMask::Layer& layer);
  base::Result<std::shared_ptr<const PlaceMask>> place_mask(ir::Place place, std::size_t tier);
  base::Result<PlaceMask> compute_place_mask(ir::Place place, const TokenTrie::Tier& tier);
  base::Result<> compute_words();
  // In `within`, which is full: on_full(path) makes room for a path of a walk, and renames it.
  template <class OnNode, class OnFull>
  base::Result<> walk(const std::shared_ptr<Configurations>& within, const TokenTrie::Tier& tier, std::uint32_t from,
                      ConfigurationId at, OnNode on_node, OnFull on_full);
  void make_room(std::span<ConfigurationId> more);
  base::Result<> spend(std::uint64_t steps);  // fails past kMaskStepsMax

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<const std::vector<bool>> completable_;
  std::shared_ptr<Configurations> configurations_;
  ConfigurationId at_;
  bool ended_ = false;
  std::vector<std::uint32_t> words_;  // [mask_words] the last mask
  ConfigurationId words_of_ = kDeadConfiguration;
  std::vector<ConfigurationId> path_;  // of a walk, by depth
  std::uint64_t steps_ = 0;            // of the mask under way, or of the last one
  // PlaceMasks of the mask under way: one that many readings stand at counts once.
  std::map<PlaceKey, std::shared_ptr<const PlaceMask>> place_masks_;
  bool is_fresh_ = false;               // configurations_ held nothing but at_ when the mask began
  bool is_forced_ = false;              // the mask is to begin again like that
  std::optional<base::Error> refused_;  // of the mask at at_
};

}  // namespace llorch::grammar
