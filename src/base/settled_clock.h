#pragma once
// The wall clock for what expires. Somebody sets a clock forward, or a machine starts with a wrong one and a time server corrects
// it minutes later: neither may end at once what was kept for days.
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace llorch::base {

// How long the machine has slept since it started. The monotonic clock stands meanwhile.
std::int64_t asleep_ms();

// Goes as fast as the monotonic clock. Where the wall clock leaves it behind by more than kJumpMs, it follows once the wall clock
// has gone on for kSettleMs without another jump; it is never ahead of the wall clock. Belongs to one thread.
class SettledClock {
 public:
  static constexpr std::int64_t kJumpMs = 60'000;
  static constexpr std::int64_t kSettleMs = 3'600'000;

  // `newest_unix_ms`: the latest time that an earlier process wrote down; what has passed since then counts after kSettleMs.
  // Absent: nothing is there that could expire, and the wall clock counts. REQUIRES: `clock` outlives it.
  SettledClock(const Clock& clock, std::optional<std::int64_t> newest_unix_ms);

  // Notices no jump by itself: call it a few times in kSettleMs.
  std::int64_t unix_ms();

 private:
  const Clock* clock_;
  Time settled_;
  std::optional<Time> jumped_;  // when the wall clock was first seen where it is now
};

}  // namespace llorch::base
