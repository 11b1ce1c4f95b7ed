#pragma once
// When an engine is asked again, and when it is left alone. Pure; values, so no thread rule.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/entropy.h"

namespace llorch::adapter::upstream {

// Of a call that had no effect yet: nothing of its answer has gone to anybody.
struct RetryPolicy {
  int attempts_max = 4;
  std::int64_t base_ms = 100;
  std::int64_t cap_ms = 2'000;
};

// Before attempt number `attempt` + 1 (`attempt` from 1): a random time up to the doubled base ("full jitter"), at most the cap;
// what the engine itself asks for, if that is longer, at most the cap as well. Nothing: no attempt is left.
inline std::optional<std::int64_t> retry_delay_ms(const RetryPolicy& policy, int attempt,
                                                  std::optional<std::int64_t> retry_after_ms, base::Entropy& entropy) {
  if (attempt >= policy.attempts_max) return std::nullopt;
  const std::int64_t ceiling = std::min(policy.cap_ms, policy.base_ms << std::min(attempt - 1, 20));
  const auto jittered = static_cast<std::int64_t>(entropy.next_u64() % static_cast<std::uint64_t>(ceiling + 1));
  return std::min(policy.cap_ms, std::max(jittered, retry_after_ms.value_or(0)));
}

// Opens after a number of failures in a row and then lets nothing through for a while, twice as long each time up to a limit;
// behind that one call may try.
class Breaker {
 public:
  struct Limits {
    int failures_max = 5;
    std::int64_t open_ms = 1'000;
    std::int64_t open_ms_max = 30'000;
  };
  explicit Breaker(Limits limits) : limits_(limits), open_ms_(limits.open_ms) {}

  // Whether a call may go out now; 0 or how long to wait. While it is half open only the first that asks may.
  std::int64_t wait_ms(std::int64_t now_ms) {
    if (failures_ < limits_.failures_max) return 0;
    if (now_ms < open_until_ms_) return open_until_ms_ - now_ms;
    open_until_ms_ = now_ms + open_ms_;  // others wait for what comes of this one
    return 0;
  }
  void succeeded() {
    failures_ = 0;
    open_ms_ = limits_.open_ms;
  }
  void failed(std::int64_t now_ms) {
    if (++failures_ < limits_.failures_max) return;
    open_until_ms_ = now_ms + open_ms_;
    open_ms_ = std::min(open_ms_ * 2, limits_.open_ms_max);
  }
  bool is_open() const { return failures_ >= limits_.failures_max; }

 private:
  Limits limits_;
  int failures_ = 0;
  std::int64_t open_ms_;
  std::int64_t open_until_ms_ = 0;
};

}  // namespace llorch::adapter::upstream
