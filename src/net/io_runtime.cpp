#include "net/io_runtime.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/assert.h"
#include "base/exceptions.h"
#include "base/log.h"
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

IoUse used_so_far(std::int64_t requests) {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return {.elapsed_s = std::chrono::duration<double>(now).count(),
          .cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .wakes = usage.ru_nvcsw,
          .requests = requests};
}

// Takes the priority from the thread it runs on, and gives it back when that may go first and some time has passed: at
// first two seconds, twice as long each time it has to be taken again soon.
class PriorityWatch : public std::enable_shared_from_this<PriorityWatch> {
 public:
  PriorityWatch(asio::io_context& context, const std::atomic<std::int64_t>& requests)
      : timer_(context.get_executor()), requests_(requests) {}

  void start() {
    timer_.expires_after(kPeriod);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error) return;
      self->look();
      self->start();
    });
  }

 private:
  static constexpr std::chrono::milliseconds kPeriod{500};
  static constexpr double kOrdinaryMinS = 2, kOrdinaryMaxS = 64, kProvenS = 10;

  void look() {
    const IoUse now = used_so_far(requests_);
    const bool go_first = should_go_first({.elapsed_s = now.elapsed_s - last_.elapsed_s,
                                           .cpu_s = now.cpu_s - last_.cpu_s,
                                           .wakes = now.wakes - last_.wakes,
                                           .requests = now.requests - last_.requests});
    last_ = now;
    if (realtime_ && !go_first) {
      if (now.elapsed_s - changed_s_ > kProvenS) ordinary_s_ = kOrdinaryMinS;
      change(false, now.elapsed_s);
    } else if (!realtime_ && go_first && now.elapsed_s - changed_s_ > ordinary_s_) {
      ordinary_s_ = std::min(2 * ordinary_s_, kOrdinaryMaxS);
      change(true, now.elapsed_s);
    }
  }

  void change(bool realtime, double now_s) {
    changed_s_ = now_s;
    if (!set_realtime(pthread_self(), realtime)) return;
    realtime_ = realtime;
    base::log_event(base::LogLevel::kInfo, "io_priority", {},
                    realtime ? "The I/O thread goes before ordinary threads again."
                             : "The I/O thread is busy and waits for its turn like others.",
                    {{"realtime", realtime}});
  }

  SteadyTimer timer_;
  const std::atomic<std::int64_t>& requests_;
  IoUse last_ = used_so_far(requests_);
  double changed_s_ = last_.elapsed_s, ordinary_s_ = kOrdinaryMinS;
  bool realtime_ = true;
};
}  // namespace

bool should_go_first(const IoUse& use) {
  constexpr double kCoresMax = 0.85, kWakesPerSMax = 25'000, kRequestsPerSMax = 1'000;
  return use.cpu_s <= kCoresMax * use.elapsed_s && static_cast<double>(use.wakes) <= kWakesPerSMax * use.elapsed_s &&
         static_cast<double>(use.requests) <= kRequestsPerSMax * use.elapsed_s;
}

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
    try {
      fn();
    } catch (...) {
      settle();
      throw;
    }
    settle();
  }

  // REQUIRES: the lock; the call has run.
  void settle() {
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
  // One thread runs it. Not 1: with that hint Asio lets what others post pass what the thread itself has posted.
  asio::io_context context{2};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
  std::atomic<bool> stopped = false;
  std::atomic<std::int64_t> requests = 0;
  bool realtime = false;

  // Until the context is stopped. What a library throws in one call ends that call, and with it what only the call held: a
  // request of which the last reference goes is answered with INTERNAL.
  void run() {
    while (!context.stopped()) {
      try {
        context.run();
      } catch (const std::exception&) {
        base::log_event(base::LogLevel::kError, "io.call_failed", {},
                        "A call failed inside a library; the process goes on without it.",
                        {{"type", base::current_exception_type()}});
      }
    }
  }

  std::shared_ptr<Timer::State> start(std::int64_t delay_ms, std::int64_t period_ms, std::function<void()> fn) {
    auto state = std::make_shared<Timer::State>(context, period_ms, std::move(fn));
    const std::lock_guard lock(state->mutex);
    state->arm(std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms));
    return state;
  }
};

IoRuntime::IoRuntime(IoPriority priority) : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
  impl_->realtime = priority == IoPriority::kRealtime && set_realtime(impl_->thread.native_handle(), true);
  if (impl_->realtime) {
    asio::post(impl_->context,
               [watch = std::make_shared<PriorityWatch>(impl_->context, impl_->requests)] { watch->start(); });
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
void IoRuntime::count_request() { impl_->requests.fetch_add(1, std::memory_order_relaxed); }

}  // namespace llorch::net
