#include "engine/compute/cuda/emulation/apart.h"

#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using kernels::BlockIndex;

// The threads of a block, one running at a time, and where they wait for each other.
class Threads {
 public:
  Threads(std::uint32_t count, std::uint32_t seed) : count_(count), chance_(seed), threads_(count) {
    for (Thread& thread : threads_) thread.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  }

  // Runs body(thread) for all of them; returns when all have ended.
  void run(const std::function<void(std::uint32_t)>& body) {
    body_ = &body;
    at_warp_.assign(count_ / kWarp, 0);
    ready_.resize(count_);
    std::iota(ready_.begin(), ready_.end(), 0u);
    for (Thread& thread : threads_) {
      ::getcontext(&thread.context);
      thread.context.uc_stack = {.ss_sp = thread.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
      thread.context.uc_link = &scheduler_;
      const auto self = reinterpret_cast<std::uintptr_t>(this);
      ::makecontext(&thread.context, reinterpret_cast<void (*)()>(&begin), 2, static_cast<std::uint32_t>(self),
                    static_cast<std::uint32_t>(self >> 32));
    }
    std::uint32_t ended = 0;
    while (ended != count_) {
      ASSERT(!ready_.empty(), "threads of a block wait at different barriers; {} have ended, {} wait for all", ended,
             at_block_);
      std::swap(ready_[chance_() % ready_.size()], ready_.back());
      running_ = ready_.back();
      ready_.pop_back();
      ::swapcontext(&scheduler_, &threads_[running_].context);
      if (!std::exchange(waits_, false)) ++ended;
    }
  }

  // A barrier of all threads, and of a warp's; called by the running thread.
  void barrier() {
    if (++at_block_ == count_) {
      at_block_ = 0;
      for (std::uint32_t thread = 0; thread < count_; ++thread) ready_.push_back(thread);
    }
    wait();
  }
  void barrier_of_warp() {
    const std::uint32_t warp = running_ / kWarp;
    if (++at_warp_[warp] == kWarp) {
      at_warp_[warp] = 0;
      for (std::uint32_t lane = 0; lane < kWarp; ++lane) ready_.push_back(warp * kWarp + lane);
    }
    wait();
  }

  static constexpr std::uint32_t kWarp = 32;
  std::uint32_t by_chance() { return static_cast<std::uint32_t>(chance_()); }
  void*& of_warp(std::uint32_t thread) { return threads_[thread].given; }
  bool flag = false;

 private:
  static constexpr std::size_t kStackBytes = 64 << 10;
  struct Thread {
    std::unique_ptr<std::byte[]> stack;
    ucontext_t context;
    void* given = nullptr;  // to its warp
  };
  static void begin(std::uint32_t low, std::uint32_t high) {
    auto& threads = *reinterpret_cast<Threads*>(std::uintptr_t{high} << 32 | low);
    (*threads.body_)(threads.running_);
  }
  void wait() {
    waits_ = true;
    ::swapcontext(&threads_[running_].context, &scheduler_);
  }

  std::uint32_t count_;
  std::minstd_rand chance_;
  std::vector<Thread> threads_;
  std::vector<std::uint32_t> ready_, at_warp_;
  std::uint32_t at_block_ = 0, running_ = 0;
  bool waits_ = false;
  const std::function<void(std::uint32_t)>* body_ = nullptr;
  ucontext_t scheduler_;
};

// kernels/block.h as one thread sees it.
template <std::uint32_t kThreadsCount>
class ThreadsBlock {
 public:
  static constexpr std::uint32_t kThreads = kThreadsCount;

  template <class T>
  class PerThread {
   public:
    T& operator[](std::uint32_t) { return value_; }

   private:
    T value_{};
  };

  ThreadsBlock(const BlockIndex& index, std::uint32_t thread, Threads& threads)
      : index_(index), thread_(thread), threads_(threads) {}
  std::uint32_t x() const { return index_.x; }
  std::uint32_t y() const { return index_.y; }
  std::uint32_t z() const { return index_.z; }

  template <class Phase>
  void each(const Phase& phase) {
    phase(thread_);
    threads_.barrier();
  }
  template <class Phase>
  void own(const Phase& phase) {
    phase(thread_);
  }

  void copy16(void* to, const void* from, bool real) {
    copies_.begin(to, real ? from : nullptr, threads_.by_chance() % 2 == 0);
  }
  void commit() { copies_.commit(); }
  template <std::uint32_t kGroups>
  void wait() {
    copies_.wait(kGroups);
    threads_.barrier();
  }

  void wait_for_stream() {}

  bool arrives_last(std::uint32_t* counter, std::uint32_t blocks) {
    threads_.barrier();
    if (thread_ == 0) threads_.flag = kernels::host_arrives_last(counter, blocks);
    threads_.barrier();
    return threads_.flag;
  }

  template <class Mma, class T, class Get>
  void mma(PerThread<T>& values, const Get& get) {
    using Operands = typename Mma::Operands;
    Operands mine = get(values[0]);
    together(&mine, [&] {
      Operands lanes[Threads::kWarp];
      for (std::uint32_t lane = 0; lane < Threads::kWarp; ++lane) lanes[lane] = *given<Operands>(lane);
      Mma::run_warp(lanes);
    });
  }
  template <std::uint32_t kLanes, class T, class Get>
  void sum_tree(PerThread<T>& values, const Get& get) {
    together(&get(values[0]), [&] {
      for (std::uint32_t first = 0; first < Threads::kWarp; first += kLanes)
        kernels::host_sum_tree<kLanes>([&](std::uint32_t lane) -> float& { return *given<float>(first + lane); });
    });
  }

 private:
  // The first lane works on what all lanes of its warp give.
  template <class Work>
  void together(void* mine, const Work& work) {
    threads_.of_warp(thread_) = mine;
    threads_.barrier_of_warp();
    if (thread_ % Threads::kWarp == 0) work();
    threads_.barrier_of_warp();
  }
  template <class T>
  T* given(std::uint32_t lane) {
    return static_cast<T*>(threads_.of_warp(thread_ + lane));
  }

  BlockIndex index_;
  std::uint32_t thread_;
  Threads& threads_;
  kernels::HostCopies copies_;
};

template <class Kernel>
void run_grid(const Grid& grid, const void* args, std::uint32_t seed) {
  constexpr int kGarbage = 0xFF;
  typename Kernel::Args own;
  std::memcpy(&own, args, sizeof own);
  const auto shared = std::make_unique<typename Kernel::Shared>();
  Threads threads(Kernel::kThreads, seed);
  std::vector<std::uint32_t> blocks(grid.x * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::ranges::shuffle(blocks, std::minstd_rand(seed));
  for (const std::uint32_t at : blocks) {
    std::memset(static_cast<void*>(shared.get()), kGarbage, sizeof *shared);
    threads.run([&](std::uint32_t thread) {
      ThreadsBlock<Kernel::kThreads> block({at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y}, thread, threads);
      kernels::run_block<Kernel>(block, *shared, own);
    });
  }
}

}  // namespace

const std::array<ApartFn, kernels::AllKernels::kCount>& kernels_apart() {
  static const auto table =
      kernels::AllKernels::table<ApartFn>([]<class Kernel>() -> ApartFn { return run_grid<Kernel>; });
  return table;
}

}  // namespace llorch::engine::compute::cuda::emulation
