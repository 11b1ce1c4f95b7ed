#pragma once
// Persistent threads for data-parallel kernels. Whoever is free takes a share of what is left of a region, so shares become
// shorter towards its end (guided self-scheduling, Polychronopoulos and Kuck 1987). A part is at most half of a thread's even share:
// so much can a thread hold up the others that the operating system holds back, because other programs want the core. Threads of
// unequal speed end nearly together. Which thread computes what therefore varies; results never depend on it.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/compute/cpu/range.h"

namespace llorch::engine::compute::cpu::host {

// Thread rule: run() is called by one thread at a time, never from inside a region.
class ThreadPool {
 public:
  // A part is what is left, divided by this times the threads.
  static constexpr std::size_t kSharesPerThread = 2;

  // `threads_count` >= 1 counts the caller of run(): a pool of one starts no thread.
  explicit ThreadPool(std::size_t threads_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads_count() const { return workers_.size() + 1; }

  // Calls body(Range, thread index) on disjoint ranges that cover [0, count), and returns when all are done. They begin at
  // multiples of `grain`, so each but the last is that long at least. One thread may take several ranges, one after the other: the
  // index is for scratch memory. Allocates nothing. A region that is worth one thread only runs on the caller.
  template <class Body>
  void run(std::size_t count, std::size_t grain, const Body& body) {
    if (grain == 0) grain = 1;
    if (threads_count() == 1 || count <= grain) {
      if (count > 0) body(Range{0, count}, std::size_t{0});
      return;
    }
    run_region({[](const void* context, Range range, std::size_t thread) {
                  (*static_cast<const Body*>(context))(range, thread);
                },
                &body, count, grain});
  }

 private:
  struct Region {
    void (*call)(const void* context, Range range, std::size_t thread) = nullptr;
    const void* context = nullptr;
    std::size_t count = 0;
    std::size_t grain = 1;

    std::size_t grains() const { return (count + grain - 1) / grain; }
  };

  void run_region(const Region& region);
  void take_parts(std::size_t thread);
  void work(std::size_t thread);

  Region region_;                                       // written before left_, read by who has taken a part
  alignas(64) std::atomic<std::uint32_t> epoch_ = 0;    // regions started; what idle workers sleep on
  alignas(64) std::atomic<std::uint64_t> left_ = 0;     // of the region: its number, grains that nobody has taken
  alignas(64) std::atomic<std::uint32_t> pending_ = 0;  // grains not done yet; what the caller sleeps on
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace llorch::engine::compute::cpu::host
