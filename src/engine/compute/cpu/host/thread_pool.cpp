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

// `parts_` of a region: its number (32 bits), how many parts it has (16), how many are taken (16). One word, so that a
// thread that comes late can neither take a part of a region that is over nor one twice.
constexpr std::uint64_t kTakenMask = 0xffff;
constexpr int kCountShift = 16, kEpochShift = 32;

std::size_t taken(std::uint64_t parts) { return parts & kTakenMask; }
std::size_t count(std::uint64_t parts) { return (parts >> kCountShift) & kTakenMask; }

}  // namespace

ThreadPool::ThreadPool(std::size_t threads_count) {
  ASSERT(threads_count >= 1 && threads_count <= kPartsMax, "threads_count={}", threads_count);
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
  pending_.store(static_cast<std::uint32_t>(region.parts), std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  parts_.store(std::uint64_t{epoch} << kEpochShift | std::uint64_t{region.parts} << kCountShift,
               std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  take_parts(0);
  for (std::uint32_t left = pending_.load(std::memory_order_acquire); left != 0;) left = wait_while(pending_, left);
}

void ThreadPool::take_parts(std::size_t thread) {
  std::uint64_t parts = parts_.load(std::memory_order_acquire);
  while (taken(parts) < count(parts)) {
    if (!parts_.compare_exchange_weak(parts, parts + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The region cannot end before this part is done: what describes it stands still.
    region_.call(region_.context, region_.range(taken(parts)), thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1 && thread != 0) pending_.notify_one();
    parts = parts_.load(std::memory_order_acquire);
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
