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

void Loop::at(std::int64_t us, Action action) {
  events_.push_back({std::max(us, now_us_), ++order_, std::move(action)});
  std::push_heap(events_.begin(), events_.end());
}

void Loop::post(const Process& process, std::int64_t delay_us, Action action) {
  at(now_us_ + delay_us,
     [this, &process, life = process.life, action = std::move(action)] { run_in(process, life, action); });
}

void Loop::run_in(const Process& process, std::uint64_t life, const Action& action) {
  if (!process.alive || process.life != life || process.hung_until_us == kForever) return;
  if (now_us_ >= process.hung_until_us) return action();
  at(process.hung_until_us, [this, &process, life, action] { run_in(process, life, action); });
}

bool Loop::step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  Event event = std::move(events_.back());
  events_.pop_back();
  now_us_ = event.us;
  ++events_count_;
  event.action();
  return true;
}

}  // namespace llorch::sim
