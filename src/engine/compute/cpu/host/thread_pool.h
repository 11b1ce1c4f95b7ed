#pragma once
// Persistent threads for data-parallel kernels. A region is cut into one contiguous range per thread, by size alone:
// which thread computes what is fixed, and results never depend on it anyway.
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
  // `threads_count` >= 1 counts the caller of run(): a pool of one starts no thread.
  explicit ThreadPool(std::size_t threads_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads_count() const { return workers_.size() + 1; }

  // Calls body(Range, thread index) on disjoint ranges that cover [0, count), each at least `grain` long except the
  // last, and returns when all are done. Allocates nothing. A region that is worth one thread only runs on the caller.
  template <class Body>
  void run(std::size_t count, std::size_t grain, const Body& body) {
    const std::size_t most = grain == 0 ? count : (count + grain - 1) / grain;
    const std::size_t parts = most < threads_count() ? most : threads_count();
    if (parts <= 1) {
      if (count > 0) body(Range{0, count}, std::size_t{0});
      return;
    }
    run_parts({[](const void* context, Range range, std::size_t thread) {
                 (*static_cast<const Body*>(context))(range, thread);
               },
               &body, count, parts});
  }

 private:
  struct Region {
    void (*call)(const void* context, Range range, std::size_t thread) = nullptr;
    const void* context = nullptr;
    std::size_t count = 0;
    std::size_t parts = 0;
  };

  void run_parts(const Region& region);
  void run_share(std::size_t thread) const;
  void work(std::size_t thread);

  Region region_;                                       // written before epoch_ grows, read after
  alignas(64) std::atomic<std::uint32_t> epoch_ = 0;    // regions started
  alignas(64) std::atomic<std::uint32_t> pending_ = 0;  // workers still in the region
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace llorch::engine::compute::cpu::host
