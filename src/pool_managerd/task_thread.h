#pragma once
// A thread that runs blocking work in order: reading model files, asking the driver. What a library throws in a task ends
// that task alone: a request that only the task held is answered with INTERNAL.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace llorch::pool_managerd {

class TaskThread {
 public:
  TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  ~TaskThread();  // stop()

  void post(std::function<void()> task);  // from any thread; nothing happens after stop()
  // Finishes the running task, drops the others, joins. Idempotent. REQUIRES: not on the thread itself.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llorch::pool_managerd
