#pragma once
// Ends a pull from another thread, also while it waits.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace llorch::pool_managerd::provisioner {

// Thread-safe.
class StopFlag {
 public:
  void request() {
    {
      const std::lock_guard lock(mutex_);
      requested_ = true;
    }
    changed_.notify_all();
  }
  bool requested() const { return requested_; }
  // Returns after `limit`, or at once if a stop is requested. True: it is.
  bool wait(std::chrono::milliseconds limit) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return requested_.load(); });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> requested_ = false;
};

}  // namespace llorch::pool_managerd::provisioner
