#pragma once
// The one thread that owns the core: events from every thread in, commands carried out in order.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "orchestratord/core/core.h"

namespace llorch::orchestratord::daemon {

class CoreThread {
 public:
  struct Options {
    core::CoreConfig config;
    base::Entropy* entropy = nullptr;  // these REQUIRE not null and outlive the thread
    const base::Clock* clock = nullptr;
    std::function<void(core::Command)> execute;          // on the thread; must not block
    std::function<void(double ms)> on_dispatch_latency;  // of a step that dispatched a job
  };
  explicit CoreThread(Options options);
  CoreThread(const CoreThread&) = delete;
  CoreThread& operator=(const CoreThread&) = delete;
  ~CoreThread() { stop(); }

  // The first event; the thread runs from here on.
  void start(core::Restored restored);
  // Thread-safe, in order. Dropped after stop().
  void post(core::Event event);
  // Lets the current step end, then joins. REQUIRES: not on the thread. Idempotent.
  void stop();

 private:
  void run();
  std::vector<core::Event> wait_for_events();
  void step(core::Event event);

  Options options_;
  core::Core core_;
  std::vector<core::Command> commands_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<core::Event> mailbox_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace llorch::orchestratord::daemon
