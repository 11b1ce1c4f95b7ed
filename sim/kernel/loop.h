#pragma once
// Virtual time: events run one after the other, in order of time and, at one time, of scheduling. Nothing else moves the
// clock. One thread.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"

namespace llorch::sim {

inline constexpr std::int64_t kMs = 1000;  // in microseconds, the unit of the loop
inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// What can crash, restart and hang. Lives as long as the world; `life` counts its starts.
struct Process {
  std::string name;
  int host = 0;
  bool alive = false;
  std::uint64_t life = 0;
  std::int64_t hung_until_us = 0;
  std::int64_t wall_skew_ms = 0;  // of its host's wall clock, which somebody sets

  void start() {
    alive = true;
    ++life;
    hung_until_us = 0;
  }
};

class Loop final : public base::Clock {
 public:
  using Action = std::function<void()>;

  base::Time now() const override;
  // As this process reads its clocks.
  base::Time now(const Process& process) const {
    return {.mono_ms = now().mono_ms, .unix_ms = now().unix_ms + process.wall_skew_ms};
  }
  std::int64_t now_us() const { return now_us_; }
  std::int64_t now_ms() const { return now().mono_ms; }

  void at(std::int64_t us, Action action);
  // Runs in this life of the process, after a hang if it hangs then; never if it died before.
  void post(const Process& process, std::int64_t delay_us, Action action);

  // Runs the next event. False if there is none.
  bool step();
  std::int64_t events_count() const { return events_count_; }
  // Destroys what was scheduled and never ran.
  void clear() { events_.clear(); }

 private:
  struct Event {
    std::int64_t us = 0;
    std::uint64_t order = 0;
    const Process* process = nullptr;  // in whose `life` it runs; none: in any case
    std::uint64_t life = 0;
    Action action;
    bool operator<(const Event& other) const { return us != other.us ? us > other.us : order > other.order; }
  };
  void push(Event event);

  std::vector<Event> events_;  // a heap, the next one first
  std::int64_t now_us_ = 0;
  std::uint64_t order_ = 0;
  std::int64_t events_count_ = 0;
};

// As a process reads its clocks. REQUIRES: both outlive it.
class ProcessClock final : public base::Clock {
 public:
  ProcessClock(const Loop& loop, const Process& process) : loop_(loop), process_(process) {}
  base::Time now() const override { return loop_.now(process_); }

 private:
  const Loop& loop_;
  const Process& process_;
};

}  // namespace llorch::sim
