// Hyper-connections and compressed attention: every kernel gives the bits of its scalar reference, where it has that order, and else what
// the formula says. Blocks run at once and threads by chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/reference/compressed.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using cpu::testing::Random;
using cpu::testing::same_bits;
using kernels::kPage;
using plan::DType;

struct CompressedMachine {
  std::unique_ptr<Driver> driver = make_driver({.seed = 17, .host_threads = 2});
  CudaStream stream{*driver};
};

std::span<const float> slice(const std::vector<float>& all, std::size_t begin, std::size_t count) {
  return std::span(all).subspan(begin, count);
}

TEST(HyperConnections, CollapseAndAddLikeTheReference) {
  CompressedMachine machine;
  Random random(41);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRows = 5, kWidth = 300;
  for (const std::uint32_t n : {1U, 2U, 4U, 16U}) {
    const std::uint32_t mix_rows = n * (n + 2);
    const auto mixes = random.normals(kRows * mix_rows), base = random.normals(mix_rows), scale = random.normals(3);
    const auto x = random.normals(kRows * n * kWidth), branch = random.normals(kRows * kWidth);
    std::vector<float> collapsed(kRows * kWidth), added(x.size());
    kernels::HyperArgs args{.mixes = mixes.data(),
                            .base = base.data(),
                            .scale = scale.data(),
                            .x = x.data(),
                            .branch = branch.data(),
                            .y = collapsed.data(),
                            .x_stride = n * kWidth,
                            .stream_stride = kWidth,
                            .width = kWidth,
                            .streams = n,
                            .mix_rows = mix_rows,
                            .iterations = 20,
                            .floor_eps = 1e-6f};
    machine.stream.launch<kernels::HyperCollapse>({kRows}, args);
    args.y = added.data();
    machine.stream.launch<kernels::HyperAdd>({kRows}, args);
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const auto w = reference::hyper_weights_exact(slice(mixes, r * mix_rows, mix_rows), base, scale,
                                                    {.streams = n, .iterations = 20, .floor_eps = 1e-6f});
      const auto streams = slice(x, r * n * kWidth, n * kWidth);
      EXPECT_TRUE(same_bits(std::vector<float>(collapsed.begin() + r * kWidth, collapsed.begin() + (r + 1) * kWidth),
                            reference::hyper_collapse_exact(streams, w)))
          << n;
      EXPECT_TRUE(same_bits(std::vector<float>(added.begin() + r * n * kWidth, added.begin() + (r + 1) * n * kWidth),
                            reference::hyper_add_exact(streams, slice(branch, r * kWidth, kWidth), w)))
          << n;
    }
  }
}

TEST(Compressor, ScansLikeTheReferenceInAnyChunks) {
  CompressedMachine machine;
  Random random(42);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kLength = 23, kDim = 150, kRate = 4;
  for (const bool overlaps : {false, true}) {
    const std::uint32_t columns = kDim * (overlaps ? 2 : 1);
    const auto kv = random.normals(kLength * columns), gate = random.normals(kLength * columns),
               bias = random.normals(kRate * columns);
    const auto expected = reference::compress_exact(kv, gate, bias, {.dim = kDim, .rate = kRate, .overlaps = overlaps});
    for (const std::uint32_t chunk : {1U, 7U, kLength}) {
      std::vector<float> state(6 * kDim, 0.0f), y(kLength * kDim), entries;
      for (std::uint32_t at = 0; at < kLength; at += chunk) {
        const std::uint32_t rows = std::min(chunk, kLength - at);
        std::vector<std::uint32_t> positions, sequences(rows, 0);
        for (std::uint32_t i = 0; i < rows; ++i) positions.push_back(at + i);
        machine.stream.launch<kernels::CompressScan>(
            {(kDim + kernels::CompressScan::kThreads - 1) / kernels::CompressScan::kThreads, rows},
            {.sequences = {.sequence_of_row = sequences.data(),
                           .rows = rows,
                           .state = reinterpret_cast<std::byte*>(state.data()),
                           .state_stride = state.size() * sizeof(float)},
             .positions = positions.data(),
             .kv = kv.data() + at * columns,
             .gate = gate.data() + at * columns,
             .bias = bias.data(),
             .y = y.data() + at * kDim,
             .stride = columns,
             .y_stride = kDim,
             .dim = kDim,
             .rate = kRate,
             .overlaps = overlaps});
      }
      for (std::uint32_t p = kRate - 1; p < kLength; p += kRate)
        entries.insert(entries.end(), y.begin() + p * kDim, y.begin() + (p + 1) * kDim);
      EXPECT_TRUE(same_bits(entries, expected)) << "chunk " << chunk;
    }
  }
}

TEST(CompressedAttention, AttendsToItsWindowAndToChosenEntries) {
  CompressedMachine machine;
  Random random(43);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kLength = 140, kDim = 40, kIndexDim = 12, kHeads = 3, kIndexHeads = 2, kRate = 3, kTop = 9,
                          kWindow = 20;
  const plan::CompressedKvLayout layout{.dtype = DType::kF32, .d_head = kDim, .d_index = kIndexDim, .rate = kRate};
  const auto kv = random.normals(kLength * kDim), entries = random.normals(kLength * (kDim + kIndexDim)),
             q = random.normals(kLength * kHeads * kDim), index_q = random.normals(kLength * kIndexHeads * kIndexDim),
             weights = random.normals(kLength * kIndexHeads), sinks = random.normals(kHeads);
  std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(layout.page_bytes(), std::byte{0xFF}));
  std::vector<std::byte*> pages{memory[1].data(), memory[2].data(), memory[0].data()};
  std::vector<std::uint32_t> sequences(kLength, 0), positions;
  for (std::uint32_t p = 0; p < kLength; ++p) positions.push_back(p);
  const kernels::CompressedCache cache{.pages = {.pages = pages.data(),
                                                 .pages_stride = 3,
                                                 .sequence_of_row = sequences.data(),
                                                 .positions = positions.data()},
                                       .entry_offset = layout.entry_offset(),
                                       .index_offset = layout.index_offset(),
                                       .head_dim = kDim,
                                       .index_dim = kIndexDim,
                                       .rate = kRate};
  machine.stream.launch<kernels::CompressedAppend<DType::kF32>>(
      {kLength}, {.cache = cache, .kv = kv.data(), .entries = entries.data(), .kv_stride = kDim});
  constexpr std::uint32_t kWords = 2, kStride = kWords * 32;
  std::vector<float> scores(kLength * kStride, NAN), out(q.size());
  std::vector<std::uint32_t> bits(kLength * kWords);
  machine.stream.launch<kernels::CompressedScores<DType::kF32>>({1, kLength}, {.cache = cache,
                                                                               .q = index_q.data(),
                                                                               .weights = weights.data(),
                                                                               .scores = scores.data(),
                                                                               .weights_stride = kIndexHeads,
                                                                               .scores_stride = kStride,
                                                                               .heads = kIndexHeads,
                                                                               .scale = 0.3f});
  machine.stream.launch<kernels::IndexChoose>({kLength}, {.scores = scores.data(),
                                                          .positions = positions.data(),
                                                          .bits = bits.data(),
                                                          .scores_stride = kStride,
                                                          .words = kWords,
                                                          .top_k = kTop,
                                                          .rate = kRate});
  machine.stream.launch<kernels::CompressedAttend<DType::kF32>>({kHeads, kLength}, {.cache = cache,
                                                                                    .q = q.data(),
                                                                                    .out = out.data(),
                                                                                    .sinks = sinks.data(),
                                                                                    .chosen = bits.data(),
                                                                                    .chosen_words = kWords,
                                                                                    .heads = kHeads,
                                                                                    .window = kWindow,
                                                                                    .scale = 0.2f});
  for (std::uint32_t p = 0; p < kLength; ++p) {
    const std::uint32_t seen = (p + 1) / kRate, first = p + 1 > kWindow ? p + 1 - kWindow : 0;
    const auto entry = [&](std::uint32_t e, std::size_t from, std::size_t count) {
      return slice(entries, ((e + 1) * kRate - 1) * (kDim + kIndexDim) + from, count);
    };
    std::vector<std::uint32_t> order;
    for (std::uint32_t e = 0; e < seen; ++e) order.push_back(e);
    std::ranges::stable_sort(
        order, [&](std::uint32_t a, std::uint32_t b) { return scores[p * kStride + a] > scores[p * kStride + b]; });
    for (const std::uint32_t e : order) {
      const auto exact =
          reference::index_scores_exact(slice(index_q, p * kIndexHeads * kIndexDim, kIndexHeads * kIndexDim),
                                        slice(weights, p * kIndexHeads, kIndexHeads), entry(e, kDim, kIndexDim), 0.3f);
      ASSERT_EQ(scores[p * kStride + e], exact[0]) << p << " " << e;  // dimensions increasing, as index_scores
    }
    order.resize(std::min<std::size_t>(order.size(), kTop));
    std::ranges::sort(order);
    std::vector<double> keys(kv.begin() + first * kDim, kv.begin() + (p + 1) * kDim);
    for (const std::uint32_t e : order) {
      ASSERT_NE(bits[p * kWords + e / 32] >> e % 32 & 1U, 0U);
      const auto own = entry(e, 0, kDim);
      keys.insert(keys.end(), own.begin(), own.end());
    }
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const auto own = slice(q, (p * kHeads + h) * kDim, kDim);
      const auto expected = reference::attend_keys_reference(std::vector<double>(own.begin(), own.end()), keys,
                                                             {.scale = 0.2f, .sink = sinks[h]});
      for (std::uint32_t i = 0; i < kDim; ++i) ASSERT_NEAR(out[(p * kHeads + h) * kDim + i], expected[i], 1e-5) << p;
    }
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
