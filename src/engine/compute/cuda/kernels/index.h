#pragma once
// A lightning index: scores of all positions a row sees, and the bits of the highest of them.
#include "engine/compute/cuda/kernels/cache.h"

namespace llorch::engine::compute::cuda::kernels {

// scores[p] = scale * sum over heads, increasing, of w_h relu(q_h . k_p). Grid: pages, rows.
struct IndexScoresArgs {
  KvPages cache;
  const float* q = nullptr;        // [rows, heads * dims], row stride `stride`
  const float* weights = nullptr;  // [rows, heads], row stride `stride`
  std::uint64_t stride = 0;
  float* scores = nullptr;  // [rows, scores_stride]
  std::uint64_t scores_stride = 0;
  std::uint32_t heads = 0;
  std::uint32_t dims = 0;
  std::uint32_t first_row = 0;  // of the step; what all rows here begin with
  float scale = 1;
  bool operator==(const IndexScoresArgs&) const = default;
};
template <plan::DType kKv>
struct IndexScores {
  using Args = IndexScoresArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = kPage;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    using Stored = typename Element<kKv>::Stored;
    const std::uint32_t row = args.first_row + block.y(), page = block.x();
    const std::uint32_t seen = args.cache.positions[row] + 1;
    if (page * kPage >= seen) return;
    const auto* keys = reinterpret_cast<const Stored*>(args.cache.of(row, page));
    const float *q = args.q + block.y() * args.stride, *weights = args.weights + block.y() * args.stride;
    block.each([&](std::uint32_t thread) {
      if (page * kPage + thread >= seen) return;
      float sum = 0.0f;
      for (std::uint32_t h = 0; h < args.heads; ++h) {
        float dot = 0.0f;
        for (std::uint32_t i = 0; i < args.dims; ++i)
          dot = fma(q[h * args.dims + i], Element<kKv>::value(keys[i * kPage + thread]), dot);
        sum = fma(weights[h], dot > 0.0f ? dot : 0.0f, sum);
      }
      args.scores[block.y() * args.scores_stride + page * kPage + thread] = sum * args.scale;
    });
  }
};

// Bit p % 32 of word p / 32: position p is one of the top_k highest scores, of equal ones the first. Grid: rows.
struct IndexChooseArgs {
  const float* scores = nullptr;             // [rows, scores_stride]
  const std::uint32_t* positions = nullptr;  // [rows], of the step
  std::uint32_t* bits = nullptr;             // [rows, words], of the step
  std::uint64_t scores_stride = 0;
  std::uint32_t words = 0;
  std::uint32_t top_k = 0;
  std::uint32_t first_row = 0;  // of the step; what `scores` begin with
  std::uint32_t rate = 1;       // positions that a score stands for
  bool operator==(const IndexChooseArgs&) const = default;
};
struct IndexChoose {
  using Args = IndexChooseArgs;
  static constexpr std::uint32_t kThreads = 256;
  struct Shared {
    std::uint32_t counts[kThreads];
    std::uint32_t least, equal, last;
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t row = args.first_row + block.x(), seen = (args.positions[row] + 1) / args.rate;
    const float* scores = args.scores + block.x() * args.scores_stride;
    std::uint32_t* bits = args.bits + std::uint64_t{row} * args.words;
    const bool all = seen <= args.top_k;
    if (!all) find(block, shared, scores, seen, args.top_k);
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t word = thread; word < args.words; word += kThreads) {
        std::uint32_t set = 0;
        for (std::uint32_t p = word * 32; p < word * 32 + 32 && p < seen; ++p) {
          const std::uint32_t order = all ? 0 : order_of(scores[p]);
          const bool chosen = all || order > shared.least || (order == shared.least && p <= shared.last);
          set |= chosen ? 1u << p % 32 : 0u;
        }
        bits[word] = set;
      }
    });
  }

 private:
  // Unsigned numbers in the order of the scores; -0 is 0.
  static LLORCH_KERNEL std::uint32_t order_of(float score) {
    const std::uint32_t bits = bits_of(score + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }
  // How many positions below `seen` have the property, in counts[0].
  template <class Block, class Property>
  static LLORCH_KERNEL void count(Block& block, Shared& shared, std::uint32_t seen, const Property& property) {
    block.each([&](std::uint32_t thread) {
      std::uint32_t found = 0;
      for (std::uint32_t p = thread; p < seen; p += kThreads) found += property(p) ? 1 : 0;
      shared.counts[thread] = found;
    });
    block.each([&](std::uint32_t thread) {
      if (thread != 0) return;
      for (std::uint32_t i = 1; i < kThreads; ++i) shared.counts[0] += shared.counts[i];
    });
  }
  // The least order among the chosen, and the last position of it that is: both bit by bit from above.
  template <class Block>
  static LLORCH_KERNEL void find(Block& block, Shared& shared, const float* scores, std::uint32_t seen,
                                 std::uint32_t top_k) {
    block.each([&](std::uint32_t thread) {
      if (thread == 0) shared.least = 0, shared.last = 0;
    });
    for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
      count(block, shared, seen, [&](std::uint32_t p) { return order_of(scores[p]) >= (shared.least | bit); });
      block.each([&](std::uint32_t thread) {
        if (thread == 0 && shared.counts[0] >= top_k) shared.least |= bit;
      });
    }
    count(block, shared, seen, [&](std::uint32_t p) { return order_of(scores[p]) > shared.least; });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) shared.equal = top_k - shared.counts[0];
    });
    // The largest number below which fewer equal ones lie than are chosen.
    for (std::uint32_t bit = 1u << 30; bit != 0; bit >>= 1) {
      count(block, shared, seen,
            [&](std::uint32_t p) { return p < (shared.last | bit) && order_of(scores[p]) == shared.least; });
      block.each([&](std::uint32_t thread) {
        if (thread == 0 && shared.counts[0] < shared.equal) shared.last |= bit;
      });
    }
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
