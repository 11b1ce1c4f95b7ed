#include "net/io_runtime.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/assert.h"
#include "net/asio_types.h"

namespace llorch::net {

namespace asio = boost::asio;

namespace {
// The lowest of the real-time priorities; nothing this thread starts inherits it.
bool become_realtime(std::thread& thread) {
  sched_param lowest{};
  lowest.sched_priority = 1;
  return pthread_setschedparam(thread.native_handle(), SCHED_RR | SCHED_RESET_ON_FORK, &lowest) == 0;
}
}  // namespace

// The mutex is held while the call runs: that is what cancel() waits for. Recursive, so that a call may cancel itself.
struct Timer::State : std::enable_shared_from_this<Timer::State> {
  State(asio::io_context& context, std::int64_t repeat_ms, std::function<void()> call)
      : timer(context.get_executor()), period(repeat_ms), fn(std::move(call)) {}

  void arm(std::chrono::steady_clock::time_point when) {
    timer.expires_at(when);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->fire();
    });
  }

  void fire() {
    const std::lock_guard lock(mutex);
    if (cancelled) return;
    running = true;
    fn();
    running = false;
    if (cancelled || period.count() == 0) {
      fn = nullptr;
      return;
    }
    // Periods missed by a slow call are skipped, not caught up.
    arm(std::max(timer.expiry() + period, std::chrono::steady_clock::now()));
  }

  void cancel() {
    const std::lock_guard lock(mutex);
    cancelled = true;
    timer.cancel();
    if (!running) fn = nullptr;
  }

  std::recursive_mutex mutex;
  SteadyTimer timer;
  std::chrono::milliseconds period;  // 0 = once
  std::function<void()> fn;
  bool running = false;
  bool cancelled = false;
};

Timer& Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Timer::cancel() {
  if (const std::shared_ptr<State> state = std::exchange(state_, nullptr)) state->cancel();
}

struct IoRuntime::Impl {
  asio::io_context context{1};  // one thread runs it
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
  std::atomic<bool> stopped = false;
  bool realtime = false;

  std::shared_ptr<Timer::State> start(std::int64_t delay_ms, std::int64_t period_ms, std::function<void()> fn) {
    auto state = std::make_shared<Timer::State>(context, period_ms, std::move(fn));
    const std::lock_guard lock(state->mutex);
    state->arm(std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms));
    return state;
  }
};

IoRuntime::IoRuntime(IoPriority priority) : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([context = &impl_->context] { context->run(); });
  impl_->realtime = priority == IoPriority::kRealtime && become_realtime(impl_->thread);
}

IoRuntime::~IoRuntime() { stop(); }

void IoRuntime::post(std::function<void()> fn) { asio::post(impl_->context, std::move(fn)); }

void IoRuntime::post_after(std::int64_t delay_ms, std::function<void()> fn) {
  impl_->start(delay_ms, 0, std::move(fn));
}

Timer IoRuntime::after(std::int64_t delay_ms, std::function<void()> fn) {
  return Timer(impl_->start(delay_ms, 0, std::move(fn)));
}

Timer IoRuntime::every(std::int64_t period_ms, std::function<void()> fn) {
  ASSERT(period_ms > 0, "period_ms {}", period_ms);
  return Timer(impl_->start(period_ms, period_ms, std::move(fn)));
}

void IoRuntime::stop() {
  ASSERT(!on_io_thread());
  impl_->work.reset();
  impl_->context.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->stopped = true;
}

bool IoRuntime::stopped() const { return impl_->stopped; }
bool IoRuntime::is_realtime() const { return impl_->realtime; }
bool IoRuntime::on_io_thread() const { return impl_->context.get_executor().running_in_this_thread(); }
boost::asio::io_context& IoRuntime::context() { return impl_->context; }

}  // namespace llorch::net
