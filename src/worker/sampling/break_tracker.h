#pragma once
// Where DRY's repeats end: tokens in which a sequence breaker is complete.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::worker::sampling {

// Fed with the bytes of every token of a sequence in order; a function of these bytes alone. Not thread-safe.
class BreakTracker {
 public:
  // REQUIRES no empty breaker.
  explicit BreakTracker(std::vector<std::string> breakers);

  // True when a breaker ends within these bytes, wherever it began. A token without bytes (a control token, the edge of
  // a turn) is a break, and no breaker reaches over it.
  bool push(std::string_view token_bytes);

 private:
  std::vector<std::string> breakers_;
  std::size_t reach_ = 0;  // bytes before a token that a breaker ending in it may begin in
  std::string text_;       // these bytes, then the token's
};

}  // namespace llorch::worker::sampling
