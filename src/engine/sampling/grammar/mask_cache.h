#pragma once
// Masks of places in grammars, kept for the next matcher that stands at an equal place of any grammar.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"

namespace llorch::engine::sampling::grammar {

// The tokens a place in a rule allows, whatever called the rule.
struct PlaceMask {
  // The allowed tokens, as a bit per token or as ids, whichever is smaller.
  std::vector<std::uint32_t> words;
  std::vector<base::TokenId> ids;
  // Trie nodes where the rule is over before the token is: what follows depends on the caller.
  std::vector<std::uint32_t> open_nodes;

  std::size_t bytes() const;
};

// Equal keys allow equal tokens: `rule` is the digest of everything the rule can reach.
struct PlaceKey {
  std::array<std::uint8_t, 16> rule{};
  std::uint32_t state = 0;
  std::uint32_t missing = 0;  // counted repetitions: how many more must come, how many may, as far as a token can tell
  std::uint32_t room = 0;
  std::uint32_t tier = 0;

  bool operator==(const PlaceKey&) const = default;
};

// Thread-safe. Least recently used entries leave when `bytes_max` is reached.
class MaskCache {
 public:
  explicit MaskCache(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  std::shared_ptr<const PlaceMask> find(const PlaceKey& key);
  void insert(const PlaceKey& key, std::shared_ptr<const PlaceMask> mask);
  std::size_t bytes() const;

 private:
  struct Hash {
    std::size_t operator()(const PlaceKey& key) const;
  };
  struct Entry {
    PlaceKey key;
    std::shared_ptr<const PlaceMask> mask;
  };

  const std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<PlaceKey, std::list<Entry>::iterator, Hash> index_;
};

}  // namespace llorch::engine::sampling::grammar
