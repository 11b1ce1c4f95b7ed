#pragma once
// What a draw knows about the sequence before it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token_id.h"

namespace llorch::engine::sampling::logits {

struct History {
  std::span<const base::TokenId> tokens{};  // prompt and output
  std::size_t prompt_tokens = 0;            // the first of `tokens`
  // One per token: not 0 where DRY's repeats end (a sequence breaker). Empty: nowhere.
  std::span<const std::uint8_t> breaks{};
};

}  // namespace llorch::engine::sampling::logits
