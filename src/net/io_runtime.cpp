#include "net/io_runtime.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

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
// The lowest of the real-time priorities, or none; what this thread starts does not inherit it.
bool set_realtime(pthread_t thread, bool realtime) {
  sched_param priority{};
  priority.sched_priority = realtime ? 1 : 0;
  return pthread_setschedparam(thread, (realtime ? SCHED_RR : SCHED_OTHER) | SCHED_RESET_ON_FORK, &priority) == 0;
}

// Takes the priority from a thread that needs nearly all of its core, and gives it back. Such a thread delays its own
// events more than any other thread does, and the peers it works for would starve. Runs on the thread.
class BusyWatch : public std::enable_shared_from_this<BusyWatch> {
 public:
  explicit BusyWatch(asio::io_context& context) : timer_(context.get_executor()) {}

  void start() {
    timer_.expires_after(kPeriod);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error) return;
      self->look();
      self->start();
    });
  }

 private:
  static constexpr std::chrono::milliseconds kPeriod{100};
  static constexpr double kBusy = 0.8, kCalm = 0.65;  // of a core

  void look() {
    const auto now = std::chrono::steady_clock::now();
    timespec cpu{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    const double cpu_s = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
    const double share = (cpu_s - cpu_s_) / std::chrono::duration<double>(now - looked_).count();
    looked_ = now;
    cpu_s_ = cpu_s;
    const bool realtime = share < (realtime_ ? kBusy : kCalm);
    if (realtime != realtime_ && set_realtime(pthread_self(), realtime)) realtime_ = realtime;
  }

  SteadyTimer timer_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  double cpu_s_ = 0;
  bool realtime_ = true;
};
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
  impl_->realtime = priority == IoPriority::kRealtime && set_realtime(impl_->thread.native_handle(), true);
  if (impl_->realtime)
    asio::post(impl_->context, [watch = std::make_shared<BusyWatch>(impl_->context)] { watch->start(); });
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
