#pragma once
// A bound on the bytes of a second that all pulls of a node take together.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace llorch::pool_managerd::provisioner::web {

// Thread-safe.
class RateLimit {
 public:
  explicit RateLimit(std::int64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Books `bytes` and returns how long whoever received them waits before it reads on.
  std::chrono::microseconds take(std::int64_t bytes) {
    if (bytes_per_second_ <= 0) return {};
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    paid_until_ = std::max(paid_until_, now) + std::chrono::microseconds(bytes * 1'000'000 / bytes_per_second_);
    return std::chrono::duration_cast<std::chrono::microseconds>(paid_until_ - now);
  }

 private:
  const std::int64_t bytes_per_second_;  // 0: no limit
  std::mutex mutex_;
  std::chrono::steady_clock::time_point paid_until_{};
};

}  // namespace llorch::pool_managerd::provisioner::web
