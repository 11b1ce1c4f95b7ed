#pragma once
// The thread and the timers that servers and clients of one process share. Hides Asio.
#include <cstdint>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace llorch::net {

// What an I/O thread did in `elapsed_s` seconds.
struct IoUse {
  double elapsed_s = 0, cpu_s = 0;
  std::int64_t wakes = 0;
  std::int64_t requests = 0;  // that servers received and clients sent
};
// Whether a thread with this use should have a real-time priority. Yes for one that carries streams and leaves others
// their share. No for one that needs nearly all of its core, that wakes for every event of a flood, or that hands many
// requests to other threads: if it waits for its turn, it finds several of them at once.
bool should_go_first(const IoUse& use);

// A pending call. Destroying or cancelling it cancels the call and waits for one that is running, so that what the call
// refers to may be destroyed next; from inside the call itself it does not wait. Do not hold a lock the call takes.
class Timer {
 public:
  struct State;

  Timer() = default;
  explicit Timer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Timer(Timer&&) noexcept = default;
  Timer& operator=(Timer&& other) noexcept;
  ~Timer() { cancel(); }
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

enum class IoPriority {
  kNormal,
  // Before every ordinary thread of the machine, where the system grants it and while should_go_first() says so; each
  // change is logged. Else as kNormal.
  kRealtime,
};

// Owns its one thread: a socket event costs no lock and wakes nobody, and what must not wait for long work has a runtime
// of its own. REQUIRES: outlives every Server, Client and Timer made with it. Thread-safe.
class IoRuntime {
 public:
  explicit IoRuntime(IoPriority priority = IoPriority::kNormal);
  IoRuntime(const IoRuntime&) = delete;
  IoRuntime& operator=(const IoRuntime&) = delete;
  ~IoRuntime();  // stop()

  // Runs `fn` on the io thread, in order of posting. It must not block.
  void post(std::function<void()> fn);
  // Runs `fn` once after `delay_ms`; nothing cancels it but stop().
  void post_after(std::int64_t delay_ms, std::function<void()> fn);
  [[nodiscard]] Timer after(std::int64_t delay_ms, std::function<void()> fn);
  // Runs `fn` every `period_ms`, first after one period; calls of one timer never overlap. REQUIRES period_ms > 0.
  [[nodiscard]] Timer every(std::int64_t period_ms, std::function<void()> fn);

  // Lets a running call finish, drops the rest, joins the thread. Stop servers and clients first. Idempotent.
  // REQUIRES: not on the io thread.
  void stop();
  bool stopped() const;
  bool on_io_thread() const;
  // Whether kRealtime was asked for and granted: CAP_SYS_NICE, or RLIMIT_RTPRIO of at least 1.
  bool is_realtime() const;

  // For src/net only.
  boost::asio::io_context& context();
  void count_request();  // see IoUse

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llorch::net
