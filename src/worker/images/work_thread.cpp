#include "worker/images/work_thread.h"

#include <exception>

#include "base/exceptions.h"
#include "base/log.h"

namespace llorch::worker::images {

WorkThread::~WorkThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool WorkThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(work));
  }
  changed_.notify_all();
  return true;
}

void WorkThread::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    // What only the work held goes with it: its request is answered as one that nobody answers.
    try {
      work();
    } catch (const std::exception&) {
      base::log_event(base::LogLevel::kError, "task.failed", {},
                      "A task failed inside a library; the process goes on without it.",
                      {{"type", base::current_exception_type()}});
    }
  }
}

}  // namespace llorch::worker::images
