// How products are cut into panels, parts and pieces: never what comes out.
#include "engine/compute/cpu/adapters/support.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "engine/compute/cpu/adapters/feed_forward.h"
#include "engine/compute/cpu/kernel_test_support.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using plan::DType;
using testing::Random;
using testing::same_bits;

// Panels so short that a few rows have several, and a thread's part crosses from one into the next.
Kernels with_panels(host::Isa isa, std::size_t rows) {
  Kernels table = kernels(isa);
  table.quant_panel_rows = table.float_panel_rows = rows;
  return table;
}

struct Weight {
  std::unique_ptr<testing::Packed> packed;
  CpuWeight weight;

  Weight(Random& random, DType dtype, std::uint32_t rows, std::uint32_t cols) {
    const MatrixShape shape{.dtype = dtype, .rows = rows, .cols = cols};
    packed = std::make_unique<testing::Packed>(shape, testing::random_matrix(random, shape));
    weight.matrix = packed->view();
  }
};

// Workspace of as many bytes as `make(arena)` takes, none of them a number before it is written.
struct Memory {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines;

  template <class Make>
  explicit Memory(const Make& make) {
    Arena arena;
    make(arena);
    lines.resize((arena.used_bytes() + 63) / 64);
    std::memset(lines.data(), 0xFF, lines.size() * sizeof(Line));
  }
  Arena arena() { return Arena({reinterpret_cast<std::byte*>(lines.data()), lines.size() * sizeof(Line)}); }
};

TEST(Panels, EveryRowMeetsEveryUnitOnce) {
  const Kernels table = with_panels(host::Isa::kAvx2, 5);
  for (const std::size_t threads : {1u, 3u, 16u}) {
    host::ThreadPool pool(threads);
    const CpuStream stream{.kernels = table, .pool = pool};
    for (const std::size_t rows : {1u, 4u, 5u, 6u, 10u, 13u, 100u})
      for (const std::size_t units : {1u, 3u, 7u, 200u})
        for (const std::size_t unit_groups : {1u, 2u, 4u}) {
          std::mutex mutex;
          std::vector<int> met(rows * units);
          // Wide rows: every unit is worth a thread.
          const Products products{.rows = rows, .width = 1u << 16, .units = units, .unit_groups = unit_groups};
          for_panels(stream, products, [&](Range panel, Range range, std::size_t thread) {
            const std::scoped_lock lock(mutex);
            EXPECT_LT(thread, threads);
            EXPECT_LT(panel.begin, panel.end);
            EXPECT_LE(panel.end - panel.begin, 5u);
            for (std::size_t row = panel.begin; row < panel.end; ++row)
              for (std::size_t unit = range.begin; unit < range.end; ++unit) ++met.at(row * units + unit);
          });
          EXPECT_TRUE(std::all_of(met.begin(), met.end(), [](int times) { return times == 1; }))
              << rows << " rows, " << units << " units, " << threads << " threads";
        }
  }
}

TEST(Panels, ProjectionsHaveTheBitsOfEachRowAlone) {
  Random random(61);
  SCOPED_TRACE(random.note());
  constexpr std::size_t kManyRows = 47, kWidth = 256;
  // A partial last group, a float matrix among quantized ones.
  const Weight a(random, DType::kQ4_K, 77, kWidth), b(random, DType::kF16, 5, kWidth),
      c(random, DType::kQ8_0, 48, kWidth);
  constexpr std::size_t kOutputs = 77 + 5 + 48;
  const auto x = random.normals(kManyRows * kWidth);
  for (const host::Isa isa : testing::isas()) {
    const auto run = [&](const Kernels& table, std::size_t threads, std::size_t first, std::size_t rows) {
      host::ThreadPool pool(threads);
      std::vector<QuantizedBlock> blocks(rows * kWidth / 32);
      std::vector<float> y(rows * kOutputs, NAN);
      project({.kernels = table, .pool = pool},
              {.x = x.data() + first * kWidth,
               .x_stride = kWidth,
               .rows = rows,
               .quantized = {.blocks = blocks.data(), .width = kWidth},
               .y_stride = kOutputs},
              std::array{Projection{&a.weight, y.data()}, Projection{&b.weight, y.data() + 77},
                         Projection{&c.weight, y.data() + 82}});
      return y;
    };
    std::vector<float> expected;
    for (std::size_t row = 0; row < kManyRows; ++row) {
      const auto y = run(kernels(isa), 1, row, 1);
      expected.insert(expected.end(), y.begin(), y.end());
    }
    for (const std::size_t panel : {5u, 11u, 47u})
      for (const std::size_t threads : {1u, 3u, 16u})
        EXPECT_TRUE(same_bits(run(with_panels(isa, panel), threads, 0, kManyRows), expected))
            << host::isa_name(isa) << ", panels of " << panel << ", " << threads << " threads";
  }
}

TEST(Panels, FeedForwardsHaveTheBitsOfEachRowAlone) {
  Random random(62);
  SCOPED_TRACE(random.note());
  constexpr std::size_t kManyRows = 47, kWidth = 256;
  struct Types {
    DType up, down;
    std::uint32_t hidden;
  };
  for (const Types& types : {Types{DType::kQ4_0, DType::kQ8_0, 192}, Types{DType::kQ5_0, DType::kF16, 70},
                             Types{DType::kF16, DType::kQ4_0, 96}, Types{DType::kF32, DType::kBF16, 130}})
    for (const bool gated : {true, false}) {
      const Weight up(random, types.up, types.hidden, kWidth), gate(random, DType::kQ8_0, types.hidden, kWidth),
          down(random, types.down, kWidth, types.hidden);
      const auto up_bias = random.normals(types.hidden), gate_bias = random.normals(types.hidden);
      const FeedForward ffn{.width = kWidth,
                            .ffn = types.hidden,
                            .gate = gated ? &gate.weight : nullptr,
                            .up = &up.weight,
                            .down = &down.weight,
                            .gate_bias = gate_bias.data(),
                            .up_bias = up_bias.data()};
      const auto x = random.normals(kManyRows * kWidth);
      for (const host::Isa isa : testing::isas()) {
        // `units`: that a thread makes at a time, at most.
        const auto run = [&](const Kernels& table, std::size_t threads, std::size_t units, std::size_t first,
                             std::size_t rows) {
          host::ThreadPool pool(threads);
          const auto make = [&](Arena& arena) {
            return FeedForwardScratch(arena, kWidth, types.hidden, rows, threads);
          };
          Memory memory(make);
          Arena arena = memory.arena();
          FeedForwardScratch scratch = make(arena);
          const std::size_t panel = std::min(rows, table.quant_panel_rows);
          scratch.thread_floats = std::min(scratch.thread_floats, 2 * panel * units * FeedForwardScratch::kUnitColumns);
          std::vector<float> y(rows * kWidth, NAN);
          feed_forward({.kernels = table, .pool = pool}, ffn, scratch,
                       {.x = x.data() + first * kWidth, .y = y.data(), .rows = rows});
          return y;
        };
        std::vector<float> expected;
        for (std::size_t row = 0; row < kManyRows; ++row) {
          const auto y = run(kernels(isa), 1, 100, row, 1);
          expected.insert(expected.end(), y.begin(), y.end());
        }
        for (const std::size_t panel : {5u, 11u, 47u})
          for (const std::size_t threads : {1u, 3u})
            for (const std::size_t units : {1u, 2u, 100u})
              EXPECT_TRUE(same_bits(run(with_panels(isa, panel), threads, units, 0, kManyRows), expected))
                  << host::isa_name(isa) << ", panels of " << panel << ", " << threads << " threads, " << units
                  << (gated ? " units, gated" : " units");
      }
    }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters
