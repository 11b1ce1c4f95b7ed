#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "base/sha256.h"
#include "base/token_id.h"

namespace llorch::engine::inference::paging {

// Names a full page by everything its content depends on: the tokens of all pages up to and with it, and a salt that stands
// for whatever else shaped them.
using PageKey = base::Sha256Digest;

// The keys of one sequence's full pages:
//   key_i = SHA-256(u32 salt bytes | salt | key_{i-1} | the 64 token ids of page i, u32 each), little-endian; key_{-1} is zero.
class PrefixKeys {
 public:
  // An empty salt shares nothing: there are never keys.
  explicit PrefixKeys(std::span<const std::byte> salt);

  // Hashes the pages of `tokens` that are full and have no key yet. REQUIRES: `tokens` begins with those of the last call.
  void extend(std::span<const base::TokenId> tokens);
  std::span<const PageKey> keys() const { return keys_; }

 private:
  bool shares_;
  base::Sha256 salted_;
  std::vector<PageKey> keys_;
};

}  // namespace llorch::engine::inference::paging
