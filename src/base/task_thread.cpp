#include "base/task_thread.h"

#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "base/exceptions.h"
#include "base/log.h"

namespace llorch::base {

TaskThread::TaskThread(std::size_t waiting_max) : waiting_max_(waiting_max), thread_([this] { run(); }) {}

TaskThread::~TaskThread() { stop(); }

bool TaskThread::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || tasks_.size() >= waiting_max_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void TaskThread::stop() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
      if (stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (const std::exception&) {
      log_event(LogLevel::kError, "task.failed", {}, "A task failed inside a library; the process goes on without it.",
                {{"type", current_exception_type()}});
    }
  }
}

std::function<void()> posts_one_at_a_time(TaskThread& thread, std::function<void()> task) {
  auto waits = std::make_shared<std::atomic<bool>>(false);
  return [&thread, task = std::move(task), waits = std::move(waits)] {
    if (waits->exchange(true)) return;
    const bool is_posted = thread.post([task, waits] {
      *waits = false;
      task();
    });
    if (!is_posted) *waits = false;
  };
}

}  // namespace llorch::base
