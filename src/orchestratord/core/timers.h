#pragma once
// What is to happen at a time. Ordered by (time, order of arming), so equal times fire in a fixed order.
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace llorch::orchestratord::core {

enum class TimerKind : std::uint8_t {
  kJobDeadline,    // number: arrival
  kJobQueue,       // number: arrival
  kCancelAnswer,   // number: arrival; clients that asked to cancel wait no longer for the store
  kRunningRetry,   // number: execution; write again that its job runs
  kStoreRetry,     // number: arrival; write the terminal row again
  kExecutionWall,  // number: execution
  kExecutionLate,  // number: execution; most of its time is over
  kExecutionIdle,  // number: execution
  kExecutionGone,  // number: execution; its worker is gone, the connection should have broken by now
  kAbort,          // number: execution; the worker did not confirm
  kPool,           // name: pool id
  kEndpoint,       // name: endpoint of a pool not heard of yet
  kWorkerStart,    // name: worker id
  kPoolDeadline,   // name: pool id; of a drain or reload
  kSchedule,       // something that waited may go on
  kReviewQueue,
  kShutdownGrace,
  kShutdownEnd,
};

struct Timer {
  TimerKind kind = TimerKind::kSchedule;
  std::uint64_t number = 0;
  std::string name;
};

class TimerQueue {
 public:
  using Handle = std::pair<std::int64_t, std::uint64_t>;

  Handle arm(std::int64_t when_ms, Timer timer) {
    const Handle handle{when_ms, ++armed_};
    timers_.emplace(handle, std::move(timer));
    return handle;
  }
  // Harmless if it fired or was never armed.
  void cancel(std::optional<Handle>& handle) {
    if (handle) timers_.erase(*handle);
    handle.reset();
  }
  std::optional<Timer> pop_due(std::int64_t now_ms) {
    if (timers_.empty() || timers_.begin()->first.first > now_ms) return std::nullopt;
    Timer timer = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    return timer;
  }
  std::int64_t next_ms() const {
    return timers_.empty() ? std::numeric_limits<std::int64_t>::max() : timers_.begin()->first.first;
  }

 private:
  std::map<Handle, Timer> timers_;
  std::uint64_t armed_ = 0;
};

}  // namespace llorch::orchestratord::core
