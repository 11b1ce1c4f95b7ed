#pragma once
// F16, BF16 and FP8 weights on tensor cores. Columns are padded to whole steps and cut in two halves; either half is one chain of
// HalfMma steps with k increasing, from +0, and y = first + second, times the powers of two that brought x and w into the range
// of F16 (of FP8 rows: the row's scale). That is all of the order: who computes which tile, how many rows share it and how far
// ahead is read change nothing. FP8 weights become F16 in registers (f8.h) and are F16 from there on.
//
// Weights are the sixteen-row operand and come from device memory as fragments (half_index), activations the eight-column one:
// one row of x costs one column block, so the same kernel streams weights for a single row and multiplies for hundreds.
#include <type_traits>

#include "engine/compute/cuda/kernels/matmul/f8.h"
#include "engine/compute/cuda/kernels/matmul/matmul.h"

namespace llorch::engine::compute::cuda::kernels {

// How a block works: kGroups groups of sixteen rows of w, kRowsOfX rows of x, kHalves halves of the columns side by side (or one
// after the other), kSteps steps of 32 columns a stage, kStages of them in shared memory. A warp has kRowTiles groups and
// kColumnTiles times eight rows of x. All take at most 96 KiB of shared memory, which every architecture has.

// Decode. Weights are read once and everything else is small: many bytes under way, little work per byte.
struct StreamShape {
  static constexpr std::uint32_t kRowsOfX = 8, kGroups = 2, kHalves = 2, kSteps = 2, kStages = 8;
  static constexpr std::uint32_t kRowTiles = 1, kColumnTiles = 1;
};
// A batch of decoding rows: as many rows of w per block as leave blocks for every processor, so that x is read again seldom.
struct BatchShape {
  static constexpr std::uint32_t kRowsOfX = 64, kGroups = 4, kHalves = 2, kSteps = 1, kStages = 5;
  static constexpr std::uint32_t kRowTiles = 1, kColumnTiles = 8;
};
// Prefill. A tile of 256 x 128 asks 24 KiB of the caches for two million products; 64 x 64 sums per warp keep shared memory
// behind the tensor cores.
struct PrefillShape {
  static constexpr std::uint32_t kRowsOfX = 128, kGroups = 16, kHalves = 1, kSteps = 1, kStages = 4;
  static constexpr std::uint32_t kRowTiles = 4, kColumnTiles = 8;
};

// What FP8 weights of a step are multiplied by.
template <std::uint32_t kGroups>
struct F8Factors {
  alignas(16) std::uint16_t factors[kGroups][kMmaRows];
};

template <DType kType, class Shape>
struct HalfMatmul {
  using Args = MatmulArgs;
  using Mma = HalfMma;
  static constexpr std::uint32_t kRows = Shape::kGroups * kMmaRows;
  static constexpr std::uint32_t kRowsOfX = Shape::kRowsOfX;
  static constexpr std::uint32_t kRowTiles = Shape::kRowTiles, kColumnTiles = Shape::kColumnTiles;
  static constexpr std::uint32_t kRowWarps = Shape::kGroups / kRowTiles;
  static constexpr std::uint32_t kColumnWarps = kRowsOfX / kMmaColumns / kColumnTiles;
  static constexpr std::uint32_t kThreads = 32 * kRowWarps * kColumnWarps * Shape::kHalves;
  static constexpr bool kStartsEarly = true;
  static_assert(kHalfColumns % (2 * kHalfStep * Shape::kSteps) == 0, "a half is whole stages");

  static constexpr bool kF8 = kType == DType::kF8_E4M3;
  static constexpr std::uint32_t kElementBytes = kF8 ? 1 : 2;
  struct alignas(8 * kElementBytes) Stored {  // a lane's eight weights of a mma, of two rows
    std::uint32_t word[2 * kElementBytes];
  };
  struct Step : std::conditional_t<kF8, F8Factors<Shape::kGroups>, Nothing> {
    Stored weights[Shape::kGroups][2][32];  // [group][mma][lane]
    Words4 x[kRowsOfX][4];                  // [row of x][eight columns]
  };
  struct Shared {
    Step stages[Shape::kStages][Shape::kHalves][Shape::kSteps];
    float second[Shape::kHalves == 2 ? kRowWarps * kColumnWarps * 32 : 1][kRowTiles * kColumnTiles * 4 + 1];
  };
  struct Own {
    std::uint32_t factors[kF8 ? kRowTiles : 1][2];  // of rows g and g + 8, twice in a word
    Words4 a[kRowTiles];
    Words4 b[kColumnTiles];
    float sum[kRowTiles][kColumnTiles][4];
  };
  template <class Block>
  using Owns = typename Block::template PerThread<Own>;

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const bool early = !follows_choice(args);
    if (!early) block.wait_for_stream();
    const MatmulWork work = matmul_work(block, args, kRows, kRowsOfX);
    if (work.tile.count == 0) return;
    Owns<Block> owns;
    const std::uint32_t half_stages = args.halves.stride / (2 * kHalfStep * Shape::kSteps);
    const std::uint32_t stages = half_stages * (2 / Shape::kHalves);
    for (std::uint32_t s = 0; s + 1 < Shape::kStages; ++s) fetch<Part::kWeights>(block, shared, work, s, stages);
    if (early) block.wait_for_stream();
    for (std::uint32_t s = 0; s + 1 < Shape::kStages; ++s) {
      fetch<Part::kActivations>(block, shared, work, s, stages);
      block.commit();
    }
    for (std::uint32_t s = 0; s < stages; ++s) {
      block.template wait<Shape::kStages - 2>();
      fetch<Part::kWeights>(block, shared, work, s + Shape::kStages - 1, stages);
      fetch<Part::kActivations>(block, shared, work, s + Shape::kStages - 1, stages);
      block.commit();
      multiply(block, shared.stages[s % Shape::kStages], owns);
      if (Shape::kHalves == 1 && s + 1 == half_stages) keep_first(block, work, owns);
    }
    join(block, shared, work, owns);
  }

 private:
  struct Place {
    std::uint32_t half, group, row_of_x, g, t;  // the first group and row of x of a warp, and its lane
  };
  static LLORCH_KERNEL Place place(std::uint32_t thread) {
    const std::uint32_t warp = thread / 32;
    return {warp / (kRowWarps * kColumnWarps), warp % kRowWarps * kRowTiles,
            warp / kRowWarps % kColumnWarps * kColumnTiles * kMmaColumns, thread % 32 / 4, thread % 4};
  }
  // column(i, c, low) for every row i of the tile that a thread has sums of, as far as there are such rows; row(r, n, e) for
  // every row n of w, e its place in the sums.
  template <class Column>
  static LLORCH_KERNEL void each_column(const MatmulWork& work, std::uint32_t thread, const Column& column) {
    const Place at = place(thread);
    LLORCH_UNROLL
    for (std::uint32_t c = 0; c < kColumnTiles; ++c) LLORCH_UNROLL
    for (std::uint32_t low = 0; low < 2; ++low) {
      const std::uint32_t i = at.row_of_x + c * kMmaColumns + 2 * at.t + low;
      if (i < work.tile.count) column(i, c, low);
    }
  }
  template <class Row>
  static LLORCH_KERNEL void each_row(const MatmulWork& work, std::uint32_t thread, std::uint32_t low, const Row& row) {
    const Place at = place(thread);
    LLORCH_UNROLL
    for (std::uint32_t r = 0; r < kRowTiles; ++r) LLORCH_UNROLL
    for (std::uint32_t high = 0; high < 2; ++high) {
      const std::uint32_t n = work.first_row + (at.group + r) * kMmaRows + at.g + 8 * high;
      if (n < work.target.w.n) row(r, n, 2 * high + low);
    }
  }

  enum class Part { kWeights, kActivations };
  // Starts a part of stage s on its way; of stages past the last one there is none.
  template <Part kPart, class Block>
  static LLORCH_KERNEL void fetch(Block& block, Shared& shared, const MatmulWork& work, std::uint32_t s,
                                  std::uint32_t stages) {
    if (s >= stages) return;
    block.own([&](std::uint32_t thread) {
      LLORCH_UNROLL
      for (std::uint32_t h = 0; h < Shape::kHalves; ++h) LLORCH_UNROLL
      for (std::uint32_t k = 0; k < Shape::kSteps; ++k) {
        Step& to = shared.stages[s % Shape::kStages][h][k];
        const std::uint32_t step = (h * stages + s) * Shape::kSteps + k;
        if constexpr (kPart == Part::kWeights) {
          fetch_weights(block, to, work, step, thread);
        } else {
          fetch_activations(block, to, work, step, thread);
        }
      }
    });
  }
  // word(i) for a thread's share of kCount. The rounds are as many as are needed: a compiler that is not told unrolls further.
  template <std::uint32_t kCount, class Word>
  static LLORCH_KERNEL void each_word(std::uint32_t thread, const Word& word) {
    LLORCH_UNROLL
    for (std::uint32_t first = 0; first < kCount; first += kThreads)
      if (first + kThreads <= kCount || first + thread < kCount) word(first + thread);
  }
  template <class Block>
  static LLORCH_KERNEL void fetch_weights(Block& block, Step& to, const MatmulWork& work, std::uint32_t step,
                                          std::uint32_t thread) {
    constexpr std::uint32_t kWordsOfGroup = kHalfStepElements * kElementBytes / sizeof(Words4);
    each_word<Shape::kGroups * kWordsOfGroup>(thread, [&](std::uint32_t i) {
      const std::uint32_t group = i / kWordsOfGroup, at = i % kWordsOfGroup, lane = at * (2 / kElementBytes);
      const Source from = source(work, group);
      block.copy16(&to.weights[group][lane / 32][lane % 32],
                   from.group + (std::uint64_t{step} * kWordsOfGroup + at) * sizeof(Words4), from.real);
    });
    if constexpr (kF8) {
      if (thread >= 2 * Shape::kGroups) return;
      const std::uint32_t group = thread / 2, half = thread % 2;
      const Source from = source(work, group);
      const std::uint64_t at = step / (kF8Columns / kHalfStep) * std::uint64_t{2} + half;
      block.copy16(&to.factors[group][half * kMmaRows / 2],
                   from.group + f8_code_bytes(work.target.w.k) + at * sizeof(Words4), from.real);
    }
  }
  // Where a group of the tile lies; of one past the last there is nothing.
  struct Source {
    const std::byte* group;
    bool real;
  };
  static LLORCH_KERNEL Source source(const MatmulWork& work, std::uint32_t group) {
    const Matrix& w = work.target.w;
    const std::uint32_t row = work.first_row + group * kMmaRows;
    return {work.w + (row < w.n ? row / kMmaRows * w.row_bytes : 0), row < w.n};
  }
  template <class Block>
  static LLORCH_KERNEL void fetch_activations(Block& block, Step& to, const MatmulWork& work, std::uint32_t step,
                                              std::uint32_t thread) {
    const HalfRows& x = work.args.halves;
    each_word<kRowsOfX * 4>(thread, [&](std::uint32_t i) {
      const bool real = i / 4 < work.tile.count;
      const std::uint64_t row = real ? work.x_part(i / 4) : 0;
      block.copy16(&to.x[i / 4][i % 4], x.values + row * x.stride + step * kHalfStep + i % 4 * 8, real);
    });
  }

  template <class Block>
  static LLORCH_KERNEL void multiply(Block& block, const Step (&stage)[Shape::kHalves][Shape::kSteps],
                                     Owns<Block>& owns) {
    LLORCH_UNROLL
    for (std::uint32_t k = 0; k < Shape::kSteps; ++k) {
      block.own([&](std::uint32_t thread) {
        const Place at = place(thread);
        LLORCH_UNROLL
        for (std::uint32_t c = 0; c < kColumnTiles; ++c)
          owns[thread].b[c] = stage[at.half][k].x[at.row_of_x + c * kMmaColumns + at.g][at.t];
        if constexpr (kF8) {
          LLORCH_UNROLL
          for (std::uint32_t r = 0; r < kRowTiles; ++r) LLORCH_UNROLL
          for (std::uint32_t high = 0; high < 2; ++high)
            owns[thread].factors[r][high] = stage[at.half][k].factors[at.group + r][at.g + 8 * high] * 0x10001u;
        }
      });
      LLORCH_UNROLL
      for (std::uint32_t j = 0; j < 2; ++j) {
        block.own([&](std::uint32_t thread) {
          const Place at = place(thread);
          LLORCH_UNROLL
          for (std::uint32_t r = 0; r < kRowTiles; ++r)
            owns[thread].a[r] =
                fragment(stage[at.half][k].weights[at.group + r][j][thread % 32], owns[thread].factors[kF8 ? r : 0]);
        });
        LLORCH_UNROLL
        for (std::uint32_t r = 0; r < kRowTiles; ++r) LLORCH_UNROLL
        for (std::uint32_t c = 0; c < kColumnTiles; ++c)
          block.template mma<Mma>(owns, [r, c, j](Own& own) {
            return typename Mma::Operands{own.a[r].word, own.b[c].word + 2 * j, own.sum[r][c]};
          });
      }
    }
  }

  static LLORCH_KERNEL Words4 fragment(const Stored& stored, const std::uint32_t (&factors)[2]) {
    Words4 a;
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < 4; ++i) {
      if constexpr (kF8) {
        a.word[i] = f8_weights(stored.word[i / 2], i % 2, factors[i % 2]);
      } else {
        a.word[i] = stored.word[i];
      }
    }
    return a;
  }

  // Leaves the sums of the first half in y, and begins anew.
  template <class Block>
  static LLORCH_KERNEL void keep_first(Block& block, const MatmulWork& work, Owns<Block>& owns) {
    block.own([&](std::uint32_t thread) {
      each_column(work, thread, [&](std::uint32_t i, std::uint32_t c, std::uint32_t low) {
        float* y = work.y_row(i);
        each_row(work, thread, low,
                 [&](std::uint32_t r, std::uint32_t n, std::uint32_t e) { y[n] = owns[thread].sum[r][c][e]; });
      });
      LLORCH_UNROLL
      for (std::uint32_t j = 0; j < kRowTiles * kColumnTiles * 4; ++j)
        owns[thread].sum[j / (kColumnTiles * 4)][j / 4 % kColumnTiles][j % 4] = 0.0f;
    });
  }

  // Both halves of a sum meet: in shared memory, or where the first was left in y.
  template <class Block>
  static LLORCH_KERNEL void join(Block& block, Shared& shared, const MatmulWork& work, Owns<Block>& owns) {
    constexpr std::uint32_t kHalfThreads = kThreads / Shape::kHalves;
    const Matrix& w = work.target.w;
    if constexpr (Shape::kHalves == 2) {
      block.each([&](std::uint32_t thread) {
        if (thread < kHalfThreads) return;
        LLORCH_UNROLL
        for (std::uint32_t j = 0; j < kRowTiles * kColumnTiles * 4; ++j)
          shared.second[thread - kHalfThreads][j] =
              owns[thread].sum[j / (kColumnTiles * 4)][j / 4 % kColumnTiles][j % 4];
      });
    }
    block.own([&](std::uint32_t thread) {
      if (thread >= kHalfThreads) return;
      each_column(work, thread, [&](std::uint32_t i, std::uint32_t c, std::uint32_t low) {
        float* y = work.y_row(i);
        const float x_scale = work.args.halves.scales[work.x_part(i)];
        each_row(work, thread, low, [&](std::uint32_t r, std::uint32_t n, std::uint32_t e) {
          const float own = owns[thread].sum[r][c][e];
          float sum = Shape::kHalves == 2 ? own + shared.second[thread][(r * kColumnTiles + c) * 4 + e] : y[n] + own;
          sum = sum * x_scale;
          if constexpr (kType != DType::kF16)
            sum = sum * row_scales(w, work.w + n / kMmaRows * w.row_bytes)[n % kMmaRows];
          y[n] = work.biased(n, sum);
        });
      });
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
