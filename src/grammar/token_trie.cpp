#include "grammar/token_trie.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "grammar/control_token.h"

namespace llorch::grammar {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kBytesMax = 1 << 30;  // offsets are 32 bits; a real vocabulary has a few MiB

// `ids` ascend by their bytes; equal bytes share a node.
TokenTrie::Tier make_tier(const TokenTrie& trie, std::vector<TokenId> ids) {
  TokenTrie::Tier tier;
  std::vector<std::uint32_t> path{0};  // the node at each depth of the last token
  tier.nodes.push_back({});
  std::string_view last;
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    const std::string_view bytes = trie.bytes(ids[i]);
    const auto shared = static_cast<std::size_t>(
        std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    const auto end = static_cast<std::uint32_t>(tier.nodes.size());
    for (std::size_t depth = shared + 1; depth < path.size(); ++depth) tier.nodes[path[depth]].end = end;
    path.resize(shared + 1);
    for (std::size_t depth = shared; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(tier.nodes.size()));
      tier.nodes.push_back({0, i, static_cast<std::uint16_t>(depth + 1), static_cast<std::uint8_t>(bytes[depth])});
    }
    tier.depth = std::max(tier.depth, bytes.size());
    last = bytes;
  }
  const auto end = static_cast<std::uint32_t>(tier.nodes.size());
  for (const std::uint32_t node : path) tier.nodes[node].end = end;
  tier.nodes.push_back({end + 1, static_cast<std::uint32_t>(ids.size()), 0, 0});
  tier.ids = std::move(ids);
  return tier;
}

}  // namespace

base::Result<std::shared_ptr<const TokenTrie>> TokenTrie::build(std::span<const std::string_view> token_bytes,
                                                                std::span<const TokenId> end_ids,
                                                                const Options& options) {
  if (token_bytes.empty() || token_bytes.size() > kTokensMax) {
    return fail(ErrorCode::kInvalidParams, fmt::format("a vocabulary has 1 to {} tokens", kTokensMax));
  }
  if (end_ids.empty())
    return fail(ErrorCode::kInvalidParams, "constrained output needs a token that ends a generation");
  const std::shared_ptr<TokenTrie> trie(new TokenTrie(options));
  trie->end_ids_.assign(end_ids.begin(), end_ids.end());
  std::sort(trie->end_ids_.begin(), trie->end_ids_.end());
  trie->end_ids_.erase(std::unique(trie->end_ids_.begin(), trie->end_ids_.end()), trie->end_ids_.end());
  if (base::index(trie->end_ids_.back()) >= token_bytes.size()) {
    return fail(ErrorCode::kInvalidParams, fmt::format("end token {} is beyond the vocabulary of {}",
                                                       base::index(trie->end_ids_.back()), token_bytes.size()));
  }
  trie->byte_offsets_.push_back(0);
  std::array<std::vector<TokenId>, kTiers> ids;
  for (std::uint32_t i = 0; i < token_bytes.size(); ++i) {
    const ControlTokenBytes name{TokenId{i}};
    std::string_view bytes = token_bytes[i].empty() ? name.view() : token_bytes[i];
    const bool is_text = token_bytes[i].empty() || std::none_of(bytes.begin(), bytes.end(), is_control_byte);
    if (trie->is_end(TokenId{i}) || !is_text) bytes = {};
    if (bytes.size() > kTokenBytesMax) {
      return fail(ErrorCode::kInvalidParams,
                  fmt::format("token {} has {} bytes, {} are the most", i, bytes.size(), kTokenBytesMax));
    }
    if (trie->bytes_.size() + bytes.size() > kBytesMax) {
      return fail(ErrorCode::kInvalidParams, fmt::format("a vocabulary has at most {} bytes", kBytesMax));
    }
    trie->bytes_.insert(trie->bytes_.end(), bytes.begin(), bytes.end());
    trie->byte_offsets_.push_back(static_cast<std::uint32_t>(trie->bytes_.size()));
    if (bytes.empty()) continue;
    ids[bytes.size() > kShortTokenBytesMax].push_back(TokenId{i});
    if (bytes.size() == 1) trie->single_bytes_.set(static_cast<std::uint8_t>(bytes[0]));
  }
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    std::stable_sort(ids[tier].begin(), ids[tier].end(),
                     [&](TokenId a, TokenId b) { return trie->bytes(a) < trie->bytes(b); });
    trie->tiers_[tier] = make_tier(*trie, std::move(ids[tier]));
  }
  return std::shared_ptr<const TokenTrie>(trie);
}

std::string_view TokenTrie::bytes(TokenId id) const {
  const std::uint32_t i = base::index(id);
  return {bytes_.data() + byte_offsets_[i], byte_offsets_[i + 1] - byte_offsets_[i]};
}

bool TokenTrie::is_control(TokenId id) const {
  if (base::index(id) >= vocab_size()) return false;
  const std::string_view name = bytes(id);
  return !name.empty() && is_control_byte(name.front());
}

bool TokenTrie::is_end(TokenId id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

}  // namespace llorch::grammar
