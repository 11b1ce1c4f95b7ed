#include "base/settled_clock.h"

#include <algorithm>
#include <cstdlib>

namespace llorch::base {
namespace {

// The wall clock at `mono_ms`, had it gone on from `since` like the monotonic one.
std::int64_t gone_on(Time since, std::int64_t mono_ms) { return since.unix_ms + (mono_ms - since.mono_ms); }

}  // namespace

SettledClock::SettledClock(const Clock& clock, std::optional<std::int64_t> newest_unix_ms)
    : clock_(&clock), settled_(clock.now()) {
  if (!newest_unix_ms || *newest_unix_ms >= settled_.unix_ms) return;
  jumped_ = settled_;
  settled_.unix_ms = std::max<std::int64_t>(0, *newest_unix_ms);
}

std::int64_t SettledClock::unix_ms() {
  const Time now = clock_->now();
  const std::int64_t settled = gone_on(settled_, now.mono_ms);
  const bool ahead = now.unix_ms > settled + kJumpMs;
  if (ahead && (!jumped_ || std::abs(now.unix_ms - gone_on(*jumped_, now.mono_ms)) > kJumpMs)) jumped_ = now;
  if (ahead && now.mono_ms - jumped_->mono_ms < kSettleMs) return settled;
  settled_ = now;
  jumped_.reset();
  return now.unix_ms;
}

}  // namespace llorch::base
