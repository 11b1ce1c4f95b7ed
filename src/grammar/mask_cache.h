#pragma once
// Masks of places in grammars, kept for the next matcher that stands at an equal place of any grammar.
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"

namespace llorch::grammar {

// The tokens a place in a rule allows, whatever called the rule. Of a place that counts it holds a layer per number of
// items a token takes part in, so that one walk of the vocabulary serves every count; of any other place one layer.
struct PlaceMask {
  struct Layer {
    // Tokens of this layer and those before it; empty where ids say less in fewer bytes.
    std::vector<std::uint32_t> words;
    std::vector<base::TokenId> ids;  // tokens of this layer alone
    // Trie nodes right behind those where the rule may be over before the token is: whether they go on depends on the
    // caller. By their byte, because a caller goes on with few bytes.
    std::vector<std::uint32_t> open_nodes;
    struct Group {
      std::uint8_t byte;
      std::uint32_t begin;  // in open_nodes, up to the next group's
    };
    std::vector<Group> groups;

    std::span<const std::uint32_t> group(std::size_t i) const {
      const std::size_t end = i + 1 < groups.size() ? groups[i + 1].begin : open_nodes.size();
      return std::span(open_nodes).subspan(groups[i].begin, end - groups[i].begin);
    }
  };
  std::vector<Layer> layers;
  std::uint64_t steps = 0;  // that it took to compute

  std::size_t bytes() const;
};

// Equal keys allow equal tokens: `rule` is the digest of everything the rule can reach.
struct PlaceKey {
  std::array<std::uint8_t, 16> rule{};
  std::uint32_t state = 0;
  std::uint32_t tier = 0;

  auto operator<=>(const PlaceKey&) const = default;
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

}  // namespace llorch::grammar
