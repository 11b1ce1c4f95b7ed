#pragma once
// A thread that runs blocking work in order: reading model files, asking the driver, decoding images. What a library throws in a
// task ends that task alone, and what the task held is dropped: a request that only the task held is answered with INTERNAL.
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>

namespace llorch::base {

class TaskThread {
 public:
  static constexpr std::size_t kNoBound = std::numeric_limits<std::size_t>::max();

  explicit TaskThread(std::size_t waiting_max = kNoBound);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  ~TaskThread();  // stop()

  // False, and nothing happens, while `waiting_max` others wait, and after stop(). From any thread.
  bool post(std::function<void()> task);
  // Finishes the running task, drops the others, joins. Idempotent. REQUIRES: not on the thread itself.
  void stop();

 private:
  void run();

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopped_ = false;                     // guarded by mutex_
  std::thread thread_;                       // last: it uses the others
};

// Each call posts `task`, unless the post of an earlier call waits still: what was held up for long is done once, not once for each call.
// May be called from any thread. REQUIRES: not after `thread` is gone.
std::function<void()> posts_one_at_a_time(TaskThread& thread, std::function<void()> task);

}  // namespace llorch::base
