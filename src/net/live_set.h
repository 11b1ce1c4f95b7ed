#pragma once
// The open connections of a server or client, so that its owner can wait until nothing is left to call back.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace llorch::net {

// Thread-safe.
template <class T>
class LiveSet {
 public:
  // False once close() was called: the caller must not go on.
  bool add(std::shared_ptr<T> item) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    items_.emplace(item.get(), std::move(item));
    return true;
  }

  void remove(const T* item) {
    std::shared_ptr<T> last;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (const auto found = items_.find(item); found != items_.end()) {
      last = std::move(found->second);
      items_.erase(found);
    }
    if (items_.empty()) empty_.notify_all();
  }

  // Nothing is added any more. Returns what is in it.
  std::vector<std::shared_ptr<T>> close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    std::vector<std::shared_ptr<T>> all;
    for (const auto& [key, item] : items_) all.push_back(item);
    return all;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

  void wait_empty() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [this] { return items_.empty(); });
  }
  void wait_empty_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    empty_.wait_for(lock, limit, [this] { return items_.empty(); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  bool closed_ = false;
  std::unordered_map<const T*, std::shared_ptr<T>> items_;
};

}  // namespace llorch::net
