#pragma once
// The thread of kept files in a test.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"
#include "net/executor.h"

namespace llorch::orchestratord::http {

// Its time is a test's.
class TestThread final : public net::Executor {
 public:
  explicit TestThread(base::ManualClock& clock) : clock_(clock) {}
  void post(std::function<void()> fn) override { post_after(0, std::move(fn)); }
  void post_after(std::int64_t delay_ms, std::function<void()> fn) override {
    due_.emplace(clock_.now().mono_ms + delay_ms, std::move(fn));
  }
  void run_for(std::int64_t ms) {
    const std::int64_t end_ms = clock_.now().mono_ms + ms;
    while (!due_.empty() && due_.begin()->first <= end_ms) {
      auto next = due_.extract(due_.begin());
      clock_.advance_ms(std::max<std::int64_t>(0, next.key() - clock_.now().mono_ms));
      next.mapped()();
    }
    clock_.advance_ms(end_ms - clock_.now().mono_ms);
  }
  bool idle() const { return due_.empty(); }

 private:
  base::ManualClock& clock_;
  std::multimap<std::int64_t, std::function<void()>> due_;
};

}  // namespace llorch::orchestratord::http
