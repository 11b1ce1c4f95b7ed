#include "sim/kernel/loop.h"

#include <algorithm>
#include <utility>

namespace llorch::sim {
namespace {
// Any start will do; not zero, so that a forgotten initial value shows.
constexpr std::int64_t kMonoStartMs = 1'000'000;
constexpr std::int64_t kUnixStartMs = 1'700'000'000'000;
}  // namespace

base::Time Loop::now() const { return {kMonoStartMs + now_us_ / kMs, kUnixStartMs + now_us_ / kMs}; }

void Loop::push(Event event) {
  event.order = ++order_;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end());
}

void Loop::at(std::int64_t us, Action action) {
  push({.us = std::max(us, now_us_), .process = nullptr, .action = std::move(action)});
}

void Loop::post(const Process& process, std::int64_t delay_us, Action action) {
  push({.us = std::max(now_us_ + delay_us, now_us_),
        .process = &process,
        .life = process.life,
        .action = std::move(action)});
}

bool Loop::step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  Event event = std::move(events_.back());
  events_.pop_back();
  now_us_ = event.us;
  ++events_count_;
  if (const Process* process = event.process) {
    if (!process->alive || process->life != event.life || process->hung_until_us == kForever) return true;
    if (now_us_ < process->hung_until_us) {
      event.us = process->hung_until_us;
      push(std::move(event));
      return true;
    }
  }
  event.action();
  return true;
}

}  // namespace llorch::sim
