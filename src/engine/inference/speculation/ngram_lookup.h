#pragma once
// What came behind the longest earlier occurrence of a text's last tokens. Text that repeats itself or its prompt (code that is
// edited, quotes, lists, JSON) goes on as it did before.
//
// Not thread-safe. Allocates in the constructor only: 8 to 12 bytes per position.
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace llorch::engine::inference::speculation {

// Fewer tokens than this are met again by chance too often to be worth a comparison.
inline constexpr std::uint32_t kMatchTokensMin = 2;
// A longer match says no more about what follows.
inline constexpr std::uint32_t kMatchTokensMax = 16;

class NgramLookup {
 public:
  // Of texts of at most `tokens_max` tokens.
  explicit NgramLookup(std::uint32_t tokens_max);

  // Writes what followed the last occurrence of the text's end, of several the one with the longest match, then the latest;
  // where the occurrence runs into the end itself the proposals go on with themselves. Returns how many tokens matched, at most
  // kMatchTokensMax; 0: there is none, and nothing is written.
  // REQUIRES: `tokens` begins with the tokens of the call before; no more of them than tokens_max.
  std::uint32_t propose(std::span<const base::TokenId> tokens, std::span<base::TokenId> proposals);

 private:
  std::uint32_t bucket(std::span<const base::TokenId> tokens, std::uint32_t last) const;
  void index(std::span<const base::TokenId> tokens);

  // Ends of pairs of tokens, by hash: the latest of a bucket, and for each end the one before it. Numbers are positions + 1.
  std::vector<std::uint32_t> latest_;  // [a power of two]
  std::vector<std::uint32_t> before_;  // [tokens_max]
  std::uint32_t indexed_ = 1;          // ends below it are in the index
  std::uint32_t shift_;
};

}  // namespace llorch::engine::inference::speculation
