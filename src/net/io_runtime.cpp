#include "net/io_runtime.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

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
// The lowest of the real-time priorities, or none. What the thread starts does not inherit it.
bool set_realtime(pthread_t thread, bool realtime) {
  sched_param priority{};
  priority.sched_priority = realtime ? 1 : 0;
  return pthread_setschedparam(thread, (realtime ? SCHED_RR : SCHED_OTHER) | SCHED_RESET_ON_FORK, &priority) == 0;
}

// Takes the priority from a thread that keeps others from the processor, and gives it back: one that needs nearly all of its
// core, or wakes for every event of a flood, which it then never finds gathered. Runs on the thread it watches.
class PriorityWatch : public std::enable_shared_from_this<PriorityWatch> {
 public:
  explicit PriorityWatch(asio::io_context& context) : timer_(context.get_executor()) {}

  void start() {
    timer_.expires_after(kPeriod);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error) return;
      self->look();
      self->start();
    });
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{500};
  static constexpr std::chrono::seconds kOrdinaryFor{2};
  static constexpr double kCoresMax = 0.85, kWakesPerSMax = 25'000;

  void look() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    const double cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    const Clock::time_point now = Clock::now();
    const double elapsed_s = std::chrono::duration<double>(now - looked_).count();
    const bool floods = cpu_s - cpu_s_ > kCoresMax * elapsed_s ||
                        static_cast<double>(usage.ru_nvcsw - wakes_) > kWakesPerSMax * elapsed_s;
    looked_ = now;
    cpu_s_ = cpu_s;
    wakes_ = usage.ru_nvcsw;
    if (floods) ordinary_until_ = now + kOrdinaryFor;
    const bool realtime = now >= ordinary_until_;
    if (realtime != realtime_ && set_realtime(pthread_self(), realtime)) realtime_ = realtime;
  }

  SteadyTimer timer_;
  Clock::time_point looked_ = Clock::now(), ordinary_until_ = looked_;
  double cpu_s_ = 0;
  long wakes_ = 0;
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
  if (impl_->realtime) {
    asio::post(impl_->context, [watch = std::make_shared<PriorityWatch>(impl_->context)] { watch->start(); });
  }
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
