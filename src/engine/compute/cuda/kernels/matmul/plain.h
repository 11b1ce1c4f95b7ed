#pragma once
// F32 weights. Lane (k / 8) mod 32 adds its products with k increasing, one FMA each; then the tree of 32. The row is padded
// with zeros to eights. Routers and other small matrices are stored like this: no tensor core multiplies f32.
#include "engine/compute/cuda/kernels/matmul/matmul.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kFloatChunk = 8;  // elements of a row that one lane takes at a time

// A warp takes a row of w.
template <std::uint32_t kTile>
struct PlainMatmul {
  using Args = MatmulArgs;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kRows = kThreads / 32;  // of w
  static constexpr std::uint32_t kRowsOfX = kTile;
  static constexpr std::uint32_t kStaged = kTile == 1 ? 4096 : 1024;  // columns at a time, a multiple of 32 chunks
  struct alignas(16) Shared {
    float x[kTile][kStaged];
  };
  struct alignas(16) Quad {
    float x[4];
  };
  struct Sums {
    float tile[kTile];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const MatmulWork work = matmul_work(block, args, kRows, kTile);
    if (work.tile.count == 0) return;
    const Matrix& w = work.target.w;
    const std::uint32_t columns = (w.k + kFloatChunk - 1) / kFloatChunk * kFloatChunk;
    typename Block::template PerThread<Sums> sums;
    for (std::uint32_t k = 0; k < columns; k += kStaged) {
      const std::uint32_t staged = smaller(columns - k, kStaged);
      block.each([&](std::uint32_t thread) { stage(shared, work, k, staged, thread); });
      block.each([&](std::uint32_t thread) {
        const std::uint32_t n = work.first_row + thread / 32;
        if (n >= w.n) return;
        const std::byte* row = work.w + n * w.row_bytes + std::uint64_t{k} * sizeof(float);
        Sums own = sums[thread];
        for (std::uint32_t at = thread % 32 * kFloatChunk; at < staged; at += 32 * kFloatChunk)
          add_chunk(own, reinterpret_cast<const Quad*>(row) + at / 4, shared, at);
        sums[thread] = own;
      });
    }
    LLORCH_UNROLL
    for (std::uint32_t m = 0; m < kTile; ++m)
      block.template sum_tree<32>(sums, [m](Sums& own) -> float& { return own.tile[m]; });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t n = work.first_row + thread / 32, lane = thread % 32;
      if (n >= w.n || lane != 0) return;
      LLORCH_UNROLL
      for (std::uint32_t m = 0; m < kTile; ++m)
        if (m < work.tile.count) work.store(m, n, sums[thread].tile[m]);
    });
  }

 private:
  static LLORCH_KERNEL void stage(Shared& shared, const MatmulWork& work, std::uint32_t k, std::uint32_t staged,
                                  std::uint32_t thread) {
    LLORCH_UNROLL
    for (std::uint32_t m = 0; m < kTile; ++m) {
      const bool real = m < work.tile.count;
      const float* x = real ? work.args.x.part(work.x_row(m), work.part) + k : nullptr;
      for (std::uint32_t i = thread; i < staged; i += kThreads)
        shared.x[m][i] = real && k + i < work.target.w.k ? x[i] : 0.0f;
    }
  }
  static LLORCH_KERNEL void add_chunk(Sums& own, const Quad* w, const Shared& shared, std::uint32_t at) {
    LLORCH_UNROLL
    for (std::uint32_t half = 0; half < 2; ++half) {
      const Quad weights = w[half];
      LLORCH_UNROLL
      for (std::uint32_t m = 0; m < kTile; ++m) {
        const Quad x = *reinterpret_cast<const Quad*>(&shared.x[m][at + 4 * half]);
        LLORCH_UNROLL
        for (std::uint32_t i = 0; i < 4; ++i) own.tile[m] = fma(weights.x[i], x.x[i], own.tile[m]);
      }
    }
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
