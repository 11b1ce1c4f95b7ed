#include "engine/compute/cpu/host/thread_pool.h"

#include <immintrin.h>

#include <algorithm>

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

// `left_` of a region: its number and how many of its grains nobody has taken. One word, so that a thread that comes late can
// neither take a part of a region that is over nor one twice.
constexpr int kEpochShift = 32;
constexpr std::size_t kGrainsMax = 0xffffffff;

std::size_t grains_left(std::uint64_t left) { return left & kGrainsMax; }

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

void ThreadPool::run_region(const Region& region) {
  const std::size_t grains = region.grains();
  ASSERT(grains <= kGrainsMax, "{} units by {}", region.count, region.grain);
  region_ = region;
  pending_.store(static_cast<std::uint32_t>(grains), std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  left_.store(std::uint64_t{epoch} << kEpochShift | grains, std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  take_parts(0);
  for (std::uint32_t left = pending_.load(std::memory_order_acquire); left != 0;) left = wait_while(pending_, left);
}

void ThreadPool::take_parts(std::size_t thread) {
  std::uint64_t left = left_.load(std::memory_order_acquire);
  while (const std::size_t grains = grains_left(left)) {
    const std::size_t part = std::max<std::size_t>(1, grains / (kSharesPerThread * threads_count()));
    if (!left_.compare_exchange_weak(left, left - part, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The region cannot end before this part is done: what describes it stands still.
    const std::size_t begin = (region_.grains() - grains) * region_.grain;
    region_.call(region_.context, {begin, std::min(region_.count, begin + part * region_.grain)}, thread);
    const auto done = static_cast<std::uint32_t>(part);
    if (pending_.fetch_sub(done, std::memory_order_acq_rel) == done && thread != 0) pending_.notify_one();
    left = left_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(std::size_t thread) {
  std::uint32_t seen = 0;
  for (;;) {
    seen = wait_while(epoch_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    take_parts(thread);
  }
}

}  // namespace llorch::engine::compute::cpu::host
