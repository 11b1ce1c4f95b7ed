#include "base/settled_clock.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace llorch::base {
namespace {

// The wall clock at `mono_ms`, had it gone on from `since` like the monotonic one.
std::int64_t gone_on(Time since, std::int64_t mono_ms) { return since.unix_ms + (mono_ms - since.mono_ms); }

constexpr std::int64_t kMsNs = 1'000'000;
constexpr std::int64_t kSleepGrainNs = 10 * kMsNs;  // what an undisturbed look may be wrong by is less

std::int64_t ns_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

// Between two looks at the other clock. Where they are too far apart, somebody else had the processor meanwhile.
std::int64_t asleep_ms() {
  std::int64_t asleep_ns = 0;
  for (int tries = 0; tries < 100; ++tries) {
    const std::int64_t before_ns = ns_of(CLOCK_MONOTONIC);
    asleep_ns = ns_of(CLOCK_BOOTTIME) - before_ns;
    if (ns_of(CLOCK_MONOTONIC) - before_ns < kMsNs) break;
  }
  return std::max<std::int64_t>(0, asleep_ns / kSleepGrainNs * kSleepGrainNs) / kMsNs;
}

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
