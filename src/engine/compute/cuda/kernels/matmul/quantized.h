#pragma once
// Quantized weights on integer tensor cores, in the order of the CPU device: blocks of 32 increasing, exact integer sums inside a
// block, y = fma(scale, sum * d_x, y), then the mins. So a quantized matrix gives the CPU's bits, whoever computes it.
//
// A block of sixteen packed rows is one ByteMma: the planes of a group (compute/cpu/quant_layout.h) are words of four
// elements, a lane's registers are words t and 4 + t of rows g and g + 8. Where both halves of a block have scales of their
// own, each half is a mma.
#include "engine/compute/cuda/kernels/matmul/matmul.h"

namespace llorch::engine::compute::cuda::kernels {

// One row of w in one block: what multiplies its scaled sums, those of its scales first, then those of its mins. Term i is
// y = fma(factors[i], value(i, ...), y).
template <DType kType>
struct BlockOfRow {
  using Row = PackedRow<kType>;
  static constexpr std::uint32_t kScales = Row::kHalves ? 2 : 1, kTerms = kScales * (Row::kHasMin ? 2 : 1);
  float factors[kTerms] = {};

  LLORCH_KERNEL void load(const Row& row, std::uint32_t block) {
    const float factor = row.factor(block);
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < kScales; ++i) factors[i] = factor * static_cast<float>(row.scale(block, i));
    if constexpr (Row::kHasMin) {
      const float min_factor = Row::kMinSubtracted ? -row.min_factor(block) : row.min_factor(block);
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i < kScales; ++i)
        factors[kScales + i] = min_factor * static_cast<float>(row.min(block, i));
    }
  }
  // `sums` are those of the halves, or the block's.
  static LLORCH_KERNEL float value(std::uint32_t i, const std::int32_t (&sums)[kScales], std::uint32_t x_sums,
                                   float x_scale) {
    const float sum = i < kScales    ? static_cast<float>(sums[i])
                      : kScales == 2 ? half_sum(x_sums, i - kScales)
                                     : half_sum(x_sums, 0) + half_sum(x_sums, 1);
    return sum * x_scale;
  }
};

// One row of x in one block.
struct BlockOfX {
  float scale = 0;
  std::uint32_t sums = 0;
};

// Integer sums of a 16 x 8 tile in a block: c[half] of ByteMma, only the first unless the halves are apart.
template <DType kType, class Block, class Owns, class Get>
LLORCH_KERNEL void multiply_block(Block& block, Owns& owns, const Get& get) {
  if constexpr (PackedRow<kType>::kHalves) {
    using Mma = ByteMma<16>;
    LLORCH_UNROLL
    for (std::uint32_t half = 0; half < 2; ++half)
      block.template mma<Mma>(owns, [half, &get](auto& own) {
        const auto operands = get(own);
        return typename Mma::Operands{operands.a + 2 * half, operands.b + half, operands.c[half]};
      });
  } else {
    using Mma = ByteMma<32>;
    block.template mma<Mma>(owns, [&get](auto& own) {
      const auto operands = get(own);
      return typename Mma::Operands{operands.a, operands.b, operands.c[0]};
    });
  }
}
struct BlockOperands {
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::int32_t (*c)[4];
};

// Decode: sixteen rows of w, at most kRowsX of x. Warps make the terms of different blocks; then one thread per sum adds them in
// order, while what comes next is on its way.
template <DType kType, std::uint32_t kRowsX>
struct QuantStream {
  using Args = MatmulArgs;
  using Row = PackedRow<kType>;
  static constexpr std::uint32_t kThreads = 256, kWarps = kThreads / 32;
  static constexpr std::uint32_t kRows = kPackRows;
  static constexpr std::uint32_t kRowsOfX = kRowsX;
  static constexpr bool kStartsEarly = true;
  static_assert(kRowsOfX <= kMmaColumns);
  static constexpr std::uint32_t kScales = BlockOfRow<kType>::kScales, kTerms = BlockOfRow<kType>::kTerms;
  static constexpr std::uint32_t kBlocks = kRowsOfX != 1 && Row::kHasMin ? 16 : 32;  // at a time
  static constexpr std::uint32_t kOfWarp = kBlocks / kWarps;

  struct Shared {
    float factors[kBlocks][kTerms][kPackRows];
    float values[kBlocks][kTerms][kRowsOfX][kPackRows];
  };
  struct Fragment {
    BlockOfRow<kType> rows[2];  // g, g + 8
    std::uint32_t a[4], b[2];
    BlockOfX x[2];  // columns 2t, 2t + 1
    std::int32_t c[kScales][4];
  };
  struct Own {
    Fragment of[kOfWarp];
    float sum = 0;
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const bool early = !follows_choice(args);
    if (!early) block.wait_for_stream();
    const MatmulWork work = matmul_work(block, args, kRows, kRowsOfX);
    if (work.tile.count == 0) return;
    const std::uint32_t blocks = work.target.w.k / kBlockElements;
    typename Block::template PerThread<Own> owns;
    block.own([&](std::uint32_t thread) { load_weights(work, owns[thread], 0, blocks, thread); });
    if (early) block.wait_for_stream();
    block.own([&](std::uint32_t thread) { load_activations(work, owns[thread], 0, blocks, thread); });
    for (std::uint32_t b = 0; b < blocks; b += kBlocks) {
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i < kOfWarp; ++i)
        multiply_block<kType>(block, owns, [i](Own& own) {
          return BlockOperands{own.of[i].a, own.of[i].b, own.of[i].c};
        });
      block.each([&](std::uint32_t thread) {
        write_terms(shared, owns[thread], thread);
        load_weights(work, owns[thread], b + kBlocks, blocks, thread);
        load_activations(work, owns[thread], b + kBlocks, blocks, thread);
      });
      block.each([&](std::uint32_t thread) {
        if (thread < kPackRows * work.tile.count)
          owns[thread].sum = added(shared, owns[thread].sum, smaller(blocks - b, kBlocks), thread);
      });
    }
    block.own([&](std::uint32_t thread) {
      const std::uint32_t i = thread / kPackRows, n = work.first_row + thread % kPackRows;
      if (i < work.tile.count && n < work.target.w.n) work.store(i, n, owns[thread].sum);
    });
  }

 private:
  // Of the blocks from `first` on that a warp makes the terms of; past the last one all is zero.
  static LLORCH_KERNEL void load_weights(const MatmulWork& work, Own& own, std::uint32_t first, std::uint32_t blocks,
                                         std::uint32_t thread) {
    const std::byte* group = work.w + work.first_row / kPackRows * work.target.w.row_bytes;
    const std::uint32_t g = thread % 32 / 4, t = thread % 4;
    const Row rows[2] = {Row(group, blocks, g), Row(group, blocks, g + 8)};
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < kOfWarp; ++i) {
      const std::uint32_t at = first + i * kWarps + thread / 32;
      Fragment& f = own.of[i];
      f = {};
      if (at >= blocks) continue;
      LLORCH_UNROLL
      for (std::uint32_t r = 0; r < 2; ++r) {
        f.rows[r].load(rows[r], at);
        f.a[r] = rows[r].integers(at, t), f.a[2 + r] = rows[r].integers(at, 4 + t);
      }
    }
  }
  static LLORCH_KERNEL void load_activations(const MatmulWork& work, Own& own, std::uint32_t first,
                                             std::uint32_t blocks, std::uint32_t thread) {
    const std::uint32_t g = thread % 32 / 4, t = thread % 4;
    const ByteRows& x = work.args.bytes;
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < kOfWarp; ++i) {
      const std::uint32_t at = first + i * kWarps + thread / 32;
      Fragment& f = own.of[i];
      if (at >= blocks) continue;
      if (g < work.tile.count) {
        const auto* q = reinterpret_cast<const std::uint32_t*>(x.q + work.x_part(g) * x.width + at * kBlockElements);
        f.b[0] = q[t], f.b[1] = q[4 + t];
      }
      LLORCH_UNROLL
      for (std::uint32_t c = 0; c < 2; ++c) {
        if (2 * t + c >= work.tile.count) continue;
        const std::uint64_t row = work.x_part(2 * t + c) * blocks + at;
        f.x[c] = {x.scales[row], x.sums[row]};
      }
    }
  }
  static LLORCH_KERNEL void write_terms(Shared& shared, const Own& own, std::uint32_t thread) {
    const std::uint32_t g = thread % 32 / 4, t = thread % 4;
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < kOfWarp; ++i) LLORCH_UNROLL
    for (std::uint32_t e = 0; e < 4; ++e) {
      const Fragment& f = own.of[i];
      const std::uint32_t block = i * kWarps + thread / 32, row = g + e / 2 * 8, column = 2 * t + e % 2;
      if (column >= kRowsOfX) continue;
      std::int32_t sums[kScales];
      LLORCH_UNROLL
      for (std::uint32_t s = 0; s < kScales; ++s) sums[s] = f.c[s][e];
      LLORCH_UNROLL
      for (std::uint32_t k = 0; k < kTerms; ++k) {
        if (column == 0) shared.factors[block][k][row] = f.rows[e / 2].factors[k];
        shared.values[block][k][column][row] = BlockOfRow<kType>::value(k, sums, f.x[e % 2].sums, f.x[e % 2].scale);
      }
    }
  }
  static LLORCH_KERNEL float added(const Shared& shared, float sum, std::uint32_t count, std::uint32_t thread) {
    const std::uint32_t column = thread / kPackRows, row = thread % kPackRows;
    for (std::uint32_t i = 0; i < count; ++i) LLORCH_UNROLL
    for (std::uint32_t k = 0; k < kTerms; ++k)
      sum = fma(shared.factors[i][k][row], shared.values[i][k][column][row], sum);
    return sum;
  }
};

// More rows: 64 of w, 64 of x, a quarter of the tile to a warp, which runs through all blocks by itself. Its words come through the
// caches, where its neighbours find them too, one block ahead.
template <DType kType>
struct QuantTiled {
  using Args = MatmulArgs;
  using Row = PackedRow<kType>;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 128;
  static constexpr std::uint32_t kRows = 64;
  static constexpr std::uint32_t kRowsOfX = 64;
  static constexpr std::uint32_t kRowTiles = 2, kColumnTiles = 4;  // of a warp
  static constexpr std::uint32_t kScales = BlockOfRow<kType>::kScales, kTerms = BlockOfRow<kType>::kTerms;

  struct Words {
    std::uint32_t a[kRowTiles][4];
    std::uint32_t b[kColumnTiles][2];
  };
  struct Own {
    Words now, next;
    std::int32_t c[kColumnTiles][kScales][4];
    float sum[kRowTiles][kColumnTiles][4];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    const MatmulWork work = matmul_work(block, args, kRows, kRowsOfX);
    if (work.tile.count == 0) return;
    const std::uint32_t blocks = work.target.w.k / kBlockElements;
    typename Block::template PerThread<Own> owns;
    block.own([&](std::uint32_t thread) { load(work, owns[thread].next, 0, blocks, thread); });
    for (std::uint32_t b = 0; b < blocks; ++b) {
      block.own([&](std::uint32_t thread) {
        owns[thread].now = owns[thread].next;
        if (b + 1 < blocks) load(work, owns[thread].next, b + 1, blocks, thread);
      });
      LLORCH_UNROLL
      for (std::uint32_t r = 0; r < kRowTiles; ++r) {
        block.own([&](std::uint32_t thread) {
          LLORCH_UNROLL
          for (std::uint32_t i = 0; i < sizeof(Own::c) / sizeof(std::int32_t); ++i)
            owns[thread].c[i / (4 * kScales)][i / 4 % kScales][i % 4] = 0;
        });
        LLORCH_UNROLL
        for (std::uint32_t c = 0; c < kColumnTiles; ++c)
          multiply_block<kType>(block, owns, [r, c](Own& own) {
            return BlockOperands{own.now.a[r], own.now.b[c], own.c[c]};
          });
        block.own([&](std::uint32_t thread) { add(work, owns[thread], r, b, blocks, thread); });
      }
    }
    block.own([&](std::uint32_t thread) { store(work, owns[thread], thread); });
  }

 private:
  struct Place {
    std::uint32_t row, row_of_x, g, t;  // the first of a warp, and its lane
  };
  static LLORCH_KERNEL Place place(std::uint32_t thread) {
    const std::uint32_t warp = thread / 32;
    return {warp % 2 * kRowTiles * kMmaRows, warp / 2 * kColumnTiles * kMmaColumns, thread % 32 / 4, thread % 4};
  }
  // Of a row past the last one the group's last row stands in; its sums are not kept.
  static LLORCH_KERNEL Row row_of(const MatmulWork& work, const Place& at, std::uint32_t r, std::uint32_t blocks,
                                  std::uint32_t high) {
    const std::uint32_t groups = (work.target.w.n + kPackRows - 1) / kPackRows;
    const std::uint32_t group = smaller((work.first_row + at.row) / kPackRows + r, groups - 1);
    return Row(work.w + group * work.target.w.row_bytes, blocks, at.g + 8 * high);
  }
  static LLORCH_KERNEL void load(const MatmulWork& work, Words& words, std::uint32_t b, std::uint32_t blocks,
                                 std::uint32_t thread) {
    const Place at = place(thread);
    LLORCH_UNROLL
    for (std::uint32_t r = 0; r < kRowTiles; ++r) LLORCH_UNROLL
    for (std::uint32_t high = 0; high < 2; ++high) {
      const Row row = row_of(work, at, r, blocks, high);
      words.a[r][high] = row.integers(b, at.t), words.a[r][2 + high] = row.integers(b, 4 + at.t);
    }
    const ByteRows& x = work.args.bytes;
    LLORCH_UNROLL
    for (std::uint32_t c = 0; c < kColumnTiles; ++c) {
      const std::uint32_t i = smaller(at.row_of_x + c * kMmaColumns + at.g, work.tile.count - 1);
      const auto* q = reinterpret_cast<const std::uint32_t*>(x.q + work.x_part(i) * x.width + b * kBlockElements);
      words.b[c][0] = q[at.t], words.b[c][1] = q[4 + at.t];
    }
  }
  static LLORCH_KERNEL void add(const MatmulWork& work, Own& own, std::uint32_t r, std::uint32_t b,
                                std::uint32_t blocks, std::uint32_t thread) {
    const Place at = place(thread);
    const ByteRows& x = work.args.bytes;
    BlockOfRow<kType> rows[2];
    LLORCH_UNROLL
    for (std::uint32_t high = 0; high < 2; ++high) rows[high].load(row_of(work, at, r, blocks, high), b);
    LLORCH_UNROLL
    for (std::uint32_t c = 0; c < kColumnTiles; ++c) LLORCH_UNROLL
    for (std::uint32_t low = 0; low < 2; ++low) {
      const std::uint32_t i = smaller(at.row_of_x + c * kMmaColumns + 2 * at.t + low, work.tile.count - 1);
      const std::uint64_t of_x = work.x_part(i) * blocks + b;
      const float scale = x.scales[of_x];
      LLORCH_UNROLL
      for (std::uint32_t high = 0; high < 2; ++high) {
        const std::uint32_t e = 2 * high + low;
        float& sum = own.sum[r][c][e];
        std::int32_t sums[kScales];
        LLORCH_UNROLL
        for (std::uint32_t s = 0; s < kScales; ++s) sums[s] = own.c[c][s][e];
        LLORCH_UNROLL
        for (std::uint32_t k = 0; k < kTerms; ++k)
          sum = fma(rows[high].factors[k], BlockOfRow<kType>::value(k, sums, x.sums[of_x], scale), sum);
      }
    }
  }
  static LLORCH_KERNEL void store(const MatmulWork& work, const Own& own, std::uint32_t thread) {
    const Place at = place(thread);
    LLORCH_UNROLL
    for (std::uint32_t c = 0; c < kColumnTiles; ++c) LLORCH_UNROLL
    for (std::uint32_t low = 0; low < 2; ++low) {
      const std::uint32_t i = at.row_of_x + c * kMmaColumns + 2 * at.t + low;
      if (i >= work.tile.count) continue;
      float* y = work.y_row(i);
      LLORCH_UNROLL
      for (std::uint32_t r = 0; r < 2 * kRowTiles; ++r) {
        const std::uint32_t n = work.first_row + at.row + r * 8 + at.g;
        if (n < work.target.w.n) y[n] = work.biased(n, own.sum[r / 2][c][r % 2 * 2 + low]);
      }
    }
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
