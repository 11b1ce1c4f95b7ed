#include "engine/compute/cpu/host/thread_pool.h"

#include <immintrin.h>

#include "base/assert.h"

namespace llorch::engine::compute::cpu::host {
namespace {

// Regions follow each other within microseconds, so a waiter first spins (about 20 us) and only then sleeps. Short
// enough not to hurt when other processes want the core.
constexpr int kSpins = 1000;

// Until `value` no longer holds `old`.
std::uint32_t wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (;;) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const std::uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      _mm_pause();
    }
    value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads_count) {
  ASSERT(threads_count >= 1, "threads_count={}", threads_count);
  workers_.reserve(threads_count - 1);
  for (std::size_t i = 1; i < threads_count; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
}

void ThreadPool::run_parts(const Region& region) {
  region_ = region;
  pending_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  run_share(0);
  for (std::uint32_t left = pending_.load(std::memory_order_acquire); left != 0;) left = wait_while(pending_, left);
}

void ThreadPool::run_share(std::size_t thread) const {
  if (thread >= region_.parts) return;
  const Range range{region_.count * thread / region_.parts, region_.count * (thread + 1) / region_.parts};
  region_.call(region_.context, range, thread);
}

void ThreadPool::work(std::size_t thread) {
  std::uint32_t seen = 0;
  for (;;) {
    seen = wait_while(epoch_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    run_share(thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace llorch::engine::compute::cpu::host
