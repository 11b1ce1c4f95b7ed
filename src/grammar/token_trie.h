#pragma once
// A vocabulary as a prefix tree over bytes, and the masks already computed for it.
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/mask_cache.h"

namespace llorch::grammar {

using base::TokenId;

// One per loaded model, shared by every matcher and thread; immutable but for the mask cache, which locks itself.
class TokenTrie {
 public:
  struct Options {
    std::size_t mask_cache_bytes_max = 64 << 20;
  };

  // In depth-first order; a node's subtree is the nodes from its own index up to `end`.
  struct Node {
    std::uint32_t end;
    std::uint32_t first_token;  // its tokens: ids()[first_token] up to the next node's first_token
    std::uint16_t depth;        // bytes from the root; the root itself, node 0, has depth 0
    std::uint8_t byte;
  };
  // Tokens of similar length. Short ones are nearly all, and how a state looks no further than they reach is shared by
  // many more states (configurations.h).
  struct Tier {
    std::vector<Node> nodes;  // ends with a sentinel that is no node
    std::vector<TokenId> ids;
    std::size_t depth = 0;  // of the longest token
    std::size_t node_count() const { return nodes.size() - 1; }
    std::span<const TokenId> tokens(std::size_t node) const {
      return std::span(ids).subspan(nodes[node].first_token, nodes[node + 1].first_token - nodes[node].first_token);
    }
  };
  static constexpr std::size_t kTiers = 2;
  static constexpr std::size_t kShortTokenBytesMax = 16;
  static constexpr std::size_t kTokenBytesMax = 4096;
  static constexpr std::size_t kTokensMax = 1 << 24;

  // `token_bytes[id]`: the bytes token `id` stands for in an output; empty for control tokens and holes, which are allowed
  // only where a grammar names them. A token with bytes that no text has is never allowed. `end_ids` end a generation:
  // allowed where the grammar is complete, whatever bytes they have.
  // INVALID_PARAMS: no tokens, more than 2^24, an end id out of range or none at all, a token above kTokenBytesMax.
  static base::Result<std::shared_ptr<const TokenTrie>> build(std::span<const std::string_view> token_bytes,
                                                              std::span<const TokenId> end_ids, const Options& options);
  static base::Result<std::shared_ptr<const TokenTrie>> build(std::span<const std::string_view> token_bytes,
                                                              std::span<const TokenId> end_ids) {
    return build(token_bytes, end_ids, Options{});
  }

  std::size_t vocab_size() const { return byte_offsets_.size() - 1; }
  std::size_t mask_words() const { return (vocab_size() + 31) / 32; }
  // What a grammar reads when `id` comes: its text, of a control token control_token.h; empty of one that is never allowed
  // and of end ids. REQUIRES index(id) < vocab_size().
  std::string_view bytes(TokenId id) const;
  bool is_end(TokenId id) const;
  // Whether grammars may name `id`. False beyond the vocabulary.
  bool is_control(TokenId id) const;
  std::span<const TokenId> end_ids() const { return end_ids_; }
  const std::array<Tier, kTiers>& tiers() const { return tiers_; }
  // Bytes that are a token of their own.
  const std::bitset<256>& single_bytes() const { return single_bytes_; }
  MaskCache& mask_cache() const { return mask_cache_; }

 private:
  explicit TokenTrie(const Options& options) : mask_cache_(options.mask_cache_bytes_max) {}

  std::vector<char> bytes_;
  std::vector<std::uint32_t> byte_offsets_;  // [vocab + 1]
  std::vector<TokenId> end_ids_;             // ascending
  std::array<Tier, kTiers> tiers_;
  std::bitset<256> single_bytes_;
  mutable MaskCache mask_cache_;
};

}  // namespace llorch::grammar
