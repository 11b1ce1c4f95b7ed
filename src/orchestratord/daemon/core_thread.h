#pragma once
// The one thread that owns the brain: events from every thread in, commands carried out in order.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "orchestratord/brain/brain.h"

namespace llorch::orchestratord::app::brain_host {

class BrainThread {
 public:
  struct Options {
    brain::BrainConfig config;
    base::Entropy* entropy = nullptr;  // these REQUIRE not null and outlive the thread
    const base::Clock* clock = nullptr;
    std::function<void(brain::Command)> execute;         // on the thread; must not block
    std::function<void(double ms)> on_dispatch_latency;  // of a step that dispatched a job
  };
  explicit BrainThread(Options options);
  BrainThread(const BrainThread&) = delete;
  BrainThread& operator=(const BrainThread&) = delete;
  ~BrainThread() { stop(); }

  // The first event; the thread runs from here on.
  void start(brain::Restored restored);
  // Thread-safe, in order. Dropped after stop().
  void post(brain::Event event);
  // Lets the current step end, then joins. REQUIRES: not on the thread. Idempotent.
  void stop();

 private:
  void run();
  std::vector<brain::Event> wait_for_events();
  void step(brain::Event event);

  Options options_;
  brain::Brain brain_;
  std::vector<brain::Command> commands_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<brain::Event> mailbox_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace llorch::orchestratord::app::brain_host
