#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace llorch::worker::images {

// One thread for work that the io thread and the request executor must not wait for; what is posted runs in
// order. Work that a library throws out of ends there, and what it held is dropped (ADR 0081). Destroying the thread drops
// what has not begun and waits for what has.
class WorkThread {
 public:
  explicit WorkThread(std::size_t waiting_max) : waiting_max_(waiting_max), thread_([this] { run(); }) {}
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // False, and nothing happens, while `waiting_max` others wait. Thread-safe.
  [[nodiscard]] bool post(std::function<void()> work);

 private:
  void run();

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool stopping_ = false;                      // guarded by mutex_
  std::thread thread_;
};

}  // namespace llorch::worker::images
