#pragma once
// A thread block as the kernels see it, on a GPU and on a processor.
//
// A kernel is one body for both: `each(phase)` runs `phase(thread)` for every thread of the block and ends with a barrier, so
// what one phase wrote to shared or device memory the next one may read. What a thread keeps from phase to phase is a
// PerThread. `own(phase)` is a phase without the barrier: what it writes only the writing thread may read before the next one.
// There is no other way to talk across threads than shared memory between phases, `sum_tree`, whose order is written, and
// `mma` (matmul/mma.h). Copies from device to shared memory run on the side: `copy16` in a phase starts one, `commit` closes a group
// of them, `wait<n>` ends when at most the n youngest groups are under way, with a barrier.
//
// A kernel may begin while the one before it in the stream still runs (from sm_90 on). Until `wait_for_stream` a body may read its
// arguments and weights and fill shared memory; what kernels write it may touch only behind it. Every block waits, or its kernel
// would end before that one has, and the next kernel would wait for too little. run_block() does so first of all, except for
// kernels with `kStartsEarly`, which do it themselves.
//
// Blocks of a launch run in any order and know nothing of each other, but for one thing: behind `wait_for_stream` they may arrive at a
// counter of Driver::arrival_counters, and the last to come finds what all of them wrote before. Nobody waits for anybody. Who comes last
// decides who does what is left to do, never what that is.
//
// nvcc compiles the bodies for the device alone, every other compiler for the host alone.
#include <cstdint>

#if !defined(__CUDACC__)
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>
#endif

#if defined(__CUDACC__)
#define LLORCH_KERNEL __device__ __forceinline__
#define LLORCH_UNROLL _Pragma("unroll")
#else
#define LLORCH_KERNEL inline
#define LLORCH_UNROLL
#endif

namespace llorch::engine::compute::cuda::kernels {

struct BlockIndex {
  std::uint32_t x = 0, y = 0, z = 0;
};

inline constexpr std::uint32_t kArrivalCounters = 16384;  // counters there are

struct Nothing {};  // the shared memory of a kernel that needs none

struct alignas(16) Words4 {
  std::uint32_t word[4] = {};
};

#if defined(__CUDACC__)

template <std::uint32_t kThreadsCount>
class DeviceBlock {
 public:
  static constexpr std::uint32_t kThreads = kThreadsCount;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);

  template <class T>
  class PerThread {
   public:
    __device__ __forceinline__ T& operator[](std::uint32_t) { return value_; }

   private:
    T value_{};
  };

  __device__ __forceinline__ std::uint32_t x() const { return blockIdx.x; }
  __device__ __forceinline__ std::uint32_t y() const { return blockIdx.y; }
  __device__ __forceinline__ std::uint32_t z() const { return blockIdx.z; }

  template <class Phase>
  __device__ __forceinline__ void each(const Phase& phase) {
    phase(static_cast<std::uint32_t>(threadIdx.x));
    __syncthreads();
  }
  template <class Phase>
  __device__ __forceinline__ void own(const Phase& phase) {
    phase(static_cast<std::uint32_t>(threadIdx.x));
  }

  // Sixteen aligned bytes, zeros unless `real`; `from` is a device address either way.
  __device__ __forceinline__ void copy16(void* to, const void* from, bool real) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
        "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0)
        : "memory");
  }
  __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <std::uint32_t kGroups>
  __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
    __syncthreads();
  }

  // From here on the next kernel's blocks may come up too: two kernels run at a time, and no more.
  __device__ __forceinline__ void wait_for_stream() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }

  // True in the last of `blocks` blocks to arrive, which finds what the others wrote before they did; the counter is zero before and
  // after. A phase with barriers at both ends.
  __device__ __forceinline__ bool arrives_last(std::uint32_t* counter, std::uint32_t blocks) {
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
      __threadfence();  // what the block wrote, before its arrival
      last = atomicInc(counter, blocks - 1) == blocks - 1;
      __threadfence();  // the others' arrivals, before what they wrote is read
    }
    return __syncthreads_or(last ? 1 : 0) != 0;
  }

  // get(values[thread]) are the Mma::Operands of one lane of its warp.
  template <class Mma, class T, class Get>
  __device__ __forceinline__ void mma(PerThread<T>& values, const Get& get) {
    Mma::run(get(values[0]));
  }

  // Of every aligned group of kLanes threads: all get the sum of its values, added i with i + kLanes / 2, then i with
  // i + kLanes / 4, ... + 1. get(values[thread]) is the float& meant.
  template <std::uint32_t kLanes, class T, class Get>
  __device__ __forceinline__ void sum_tree(PerThread<T>& values, const Get& get) {
    static_assert(kLanes <= 32 && (kLanes & (kLanes - 1)) == 0);
    float& value = get(values[0]);
    LLORCH_UNROLL
    for (std::uint32_t half = kLanes / 2; half >= 1; half /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, half);
  }
};

#else

// In which order the threads of a block go through a phase. No body may show the difference.
enum class ThreadOrder : std::uint8_t { kForwards, kBackwards, kMixed };

// What a block waits for: behind arrive() all that earlier kernels wrote is there.
class EarlierKernels {
 public:
  virtual ~EarlierKernels() = default;
  virtual void arrive() = 0;
};

// Copies that a block on the host has begun: one may happen at once, or as late as it is waited for.
class HostCopies {
 public:
  // `from` null: zeros.
  void begin(void* to, const void* from, bool late) {
    open_.push_back({to, from});
    if (late) return;
    open_.back().run();
    open_.pop_back();
  }
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  // Until that many groups are open.
  void wait(std::uint32_t groups) {
    for (; groups_.size() > groups; groups_.pop_front())
      for (const Copy& copy : groups_.front()) copy.run();
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    void run() const {
      if (from != nullptr) {
        std::memcpy(to, from, sizeof(Words4));
      } else {
        std::memset(to, 0, sizeof(Words4));
      }
    }
  };
  std::vector<Copy> open_;
  std::deque<std::vector<Copy> > groups_;
};

// Block::arrives_last of a block on the host, said by one of its threads.
inline bool host_arrives_last(std::uint32_t* counter, std::uint32_t blocks) {
  const std::atomic_ref<std::uint32_t> arrived(*counter);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) != blocks - 1) return false;
  arrived.store(0, std::memory_order_relaxed);
  return true;
}

// Block::sum_tree of one group; value_of(lane) is its float&. Addition commutes bit for bit, so that one sum per pair is what
// each of the two threads computes for itself.
template <std::uint32_t kLanes, class ValueOf>
void host_sum_tree(const ValueOf& value_of) {
  for (std::uint32_t half = kLanes / 2; half >= 1; half /= 2)
    for (std::uint32_t i = 0; i < half; ++i) value_of(i) += value_of(i + half);
  for (std::uint32_t i = 1; i < kLanes; ++i) value_of(i) = value_of(0u);
}

template <std::uint32_t kThreadsCount>
class HostBlock {
 public:
  static constexpr std::uint32_t kThreads = kThreadsCount;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024 && (kThreads & (kThreads - 1)) == 0);

  template <class T>
  class PerThread {
   public:
    T& operator[](std::uint32_t thread) { return values_[thread]; }

   private:
    T values_[kThreads]{};
  };

  struct Options {
    ThreadOrder order = ThreadOrder::kForwards;
    std::uint32_t seed = 0;  // of a mixed order, which is another one in every phase
    EarlierKernels* earlier = nullptr;
  };
  HostBlock(const BlockIndex& index, const Options& options)
      : index_(index), order_(options.order), seed_(options.seed), earlier_(options.earlier) {}
  std::uint32_t x() const { return index_.x; }
  std::uint32_t y() const { return index_.y; }
  std::uint32_t z() const { return index_.z; }

  template <class Phase>
  void each(const Phase& phase) {
    switch (order_) {
      case ThreadOrder::kForwards:
        for (std::uint32_t thread = 0; thread < kThreads; ++thread) phase(thread);
        break;
      case ThreadOrder::kBackwards:
        for (std::uint32_t thread = kThreads; thread-- > 0;) phase(thread);
        break;
      case ThreadOrder::kMixed: {
        const std::uint32_t first = by_chance(), step = by_chance() | 1u;  // odd: every thread once
        for (std::uint32_t i = 0; i < kThreads; ++i) phase((first + i * step) % kThreads);
        break;
      }
    }
  }

  template <class Phase>
  void own(const Phase& phase) {
    each(phase);
  }

  // The two directions show either time of a copy.
  void copy16(void* to, const void* from, bool real) {
    const bool late = order_ == ThreadOrder::kBackwards || (order_ == ThreadOrder::kMixed && by_chance() % 2 == 0);
    copies_.begin(to, real ? from : nullptr, late);
  }
  void commit() { copies_.commit(); }
  template <std::uint32_t kGroups>
  void wait() {
    copies_.wait(kGroups);
  }

  void wait_for_stream() {
    if (earlier_ != nullptr) earlier_->arrive();
    has_waited_ = true;
  }
  bool has_waited() const { return has_waited_; }

  bool arrives_last(std::uint32_t* counter, std::uint32_t blocks) { return host_arrives_last(counter, blocks); }

  template <class Mma, class T, class Get>
  void mma(PerThread<T>& values, const Get& get) {
    for (std::uint32_t first = 0; first < kThreads; first += 32) {
      typename Mma::Operands lanes[32];
      for (std::uint32_t lane = 0; lane < 32; ++lane) lanes[lane] = get(values[first + lane]);
      Mma::run_warp(lanes);
    }
  }

  template <std::uint32_t kLanes, class T, class Get>
  void sum_tree(PerThread<T>& values, const Get& get) {
    for (std::uint32_t first = 0; first < kThreads; first += kLanes)
      host_sum_tree<kLanes>([&](std::uint32_t lane) -> float& { return get(values[first + lane]); });
  }

 private:
  std::uint32_t by_chance() {
    seed_ = seed_ * 1664525u + 1013904223u;
    return seed_ >> 8;
  }
  BlockIndex index_;
  ThreadOrder order_;
  std::uint32_t seed_;
  EarlierKernels* earlier_;
  bool has_waited_ = false;
  HostCopies copies_;
};

#endif

template <class Kernel>
concept StartsEarly = requires {
  Kernel::kStartsEarly;
};

template <class Kernel, class Block>
LLORCH_KERNEL void run_block(Block& block, typename Kernel::Shared& shared, const typename Kernel::Args& args) {
  if constexpr (!StartsEarly<Kernel>) block.wait_for_stream();
  Kernel::run(block, shared, args);
}

}  // namespace llorch::engine::compute::cuda::kernels
