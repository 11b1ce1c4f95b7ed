#pragma once
// Persistent threads for data-parallel kernels. A region is cut into a few contiguous ranges per thread, by size alone, and
// whoever is free takes the next one: a thread that the operating system holds back, because other programs want the
// core, holds up the others by one range at most. Ranges at the end are shorter, so that threads of unequal speed end nearly
// together. Which thread computes what therefore varies; results never depend on it.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/compute/cpu/range.h"

namespace llorch::engine::compute::cpu::host {

// Thread rule: run() is called by one thread at a time, never from inside a region.
class ThreadPool {
 public:
  static constexpr std::size_t kPartsPerThread = 4;
  static constexpr std::size_t kPartsMax = 0xffff;  // of a region; 16 bits count them
  // A region of at least so many grains for each part is cut unevenly: shorter parts of a smaller one would be crumbs.
  static constexpr std::size_t kUnevenGrains = 8;

  // `threads_count` >= 1 counts the caller of run(): a pool of one starts no thread.
  explicit ThreadPool(std::size_t threads_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads_count() const { return workers_.size() + 1; }

  // Calls body(Range, thread index) on disjoint ranges that cover [0, count), each about `grain` long at least, and
  // returns when all are done. One thread may take several ranges, one after the other: the index is for scratch memory.
  // Allocates nothing. A region that is worth one thread only runs on the caller.
  template <class Body>
  void run(std::size_t count, std::size_t grain, const Body& body) {
    const std::size_t most = grain == 0 ? count : (count + grain - 1) / grain;
    const std::size_t wanted = threads_count() == 1 ? 1 : std::min(kPartsPerThread * threads_count(), kPartsMax);
    const std::size_t parts = std::min(most, wanted);
    if (parts <= 1) {
      if (count > 0) body(Range{0, count}, std::size_t{0});
      return;
    }
    run_parts({[](const void* context, Range range, std::size_t thread) {
                 (*static_cast<const Body*>(context))(range, thread);
               },
               &body, count, parts, most >= kUnevenGrains * parts ? parts / 2 : 0});
  }

 private:
  struct Region {
    void (*call)(const void* context, Range range, std::size_t thread) = nullptr;
    const void* context = nullptr;
    std::size_t count = 0;
    std::size_t parts = 0;
    std::size_t long_parts = 0;  // how many of the first are three times as long as the others

    Range range(std::size_t part) const { return {begin(part), begin(part + 1)}; }

   private:
    std::size_t begin(std::size_t part) const {
      return count * (part + 2 * std::min(part, long_parts)) / (parts + 2 * long_parts);
    }
  };

  void run_parts(const Region& region);
  void take_parts(std::size_t thread);
  void work(std::size_t thread);

  Region region_;                                       // written before parts_, read by who has taken a part
  alignas(64) std::atomic<std::uint32_t> epoch_ = 0;    // regions started; what idle workers sleep on
  alignas(64) std::atomic<std::uint64_t> parts_ = 0;    // of the region: its number, how many parts, how many taken
  alignas(64) std::atomic<std::uint32_t> pending_ = 0;  // parts not done yet; what the caller sleeps on
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace llorch::engine::compute::cpu::host
