#pragma once
// A thread block as the kernels see it, on a GPU and on a processor.
//
// A kernel is one body for both: `each(phase)` runs `phase(thread)` for every thread of the block and ends with a barrier, so
// what one phase wrote to shared or device memory the next one may read. What a thread keeps from phase to phase is a
// PerThread. There is no other way to talk across threads than shared memory between phases and `sum_tree`, whose order is
// written: with it a body has one order of operations, and both machines give the same bits.
//
// nvcc compiles the bodies for the device alone, every other compiler for the host alone.
#include <cstdint>

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

template <std::uint32_t kThreadsCount>
class HostBlock {
 public:
  static constexpr std::uint32_t kThreads = kThreadsCount;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);

  template <class T>
  class PerThread {
   public:
    T& operator[](std::uint32_t thread) { return values_[thread]; }

   private:
    T values_[kThreads]{};
  };

  // `backwards`: threads run from the last to the first; no body may show the difference.
  HostBlock(const BlockIndex& index, bool backwards) : index_(index), backwards_(backwards) {}
  std::uint32_t x() const { return index_.x; }
  std::uint32_t y() const { return index_.y; }
  std::uint32_t z() const { return index_.z; }

  template <class Phase>
  void each(const Phase& phase) {
    if (backwards_) {
      for (std::uint32_t thread = kThreads; thread-- > 0;) phase(thread);
    } else {
      for (std::uint32_t thread = 0; thread < kThreads; ++thread) phase(thread);
    }
  }

  // Addition commutes bit for bit, so that one sum per pair is what each of the two threads computes for itself.
  template <std::uint32_t kLanes, class T, class Get>
  void sum_tree(PerThread<T>& values, const Get& get) {
    for (std::uint32_t first = 0; first < kThreads; first += kLanes) {
      for (std::uint32_t half = kLanes / 2; half >= 1; half /= 2)
        for (std::uint32_t i = 0; i < half; ++i) get(values[first + i]) += get(values[first + i + half]);
      for (std::uint32_t i = 1; i < kLanes; ++i) get(values[first + i]) = get(values[first]);
    }
  }

 private:
  BlockIndex index_;
  bool backwards_;
};

#endif

}  // namespace llorch::engine::compute::cuda::kernels
