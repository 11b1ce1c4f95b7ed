// Heads on their way into the cache and out of it, and rows that are moved: every kernel gives the bits of its scalar reference. Blocks run at
// once and threads by chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using cpu::testing::Random;
using cpu::testing::same_bits;
using kernels::kPage;
using plan::DType;
using plan::RopeLayout;

struct HeadsMachine {
  std::unique_ptr<Driver> driver = make_driver({.seed = 11, .host_threads = 2});
  CudaStream stream{*driver};
};

constexpr float kEps = 1e-5f, kFactor = 1.25f;

// Pages of sequences that nobody has written to.
struct Pages {
  Pages(std::uint32_t sequences, std::uint32_t pages_each, std::size_t floats_each)
      : memory(sequences * pages_each * floats_each, NAN), stride(pages_each) {
    for (std::uint32_t i = sequences * pages_each; i-- > 0;)
      addresses.push_back(reinterpret_cast<std::byte*>(memory.data() + i * floats_each));
  }
  const float* page(std::uint32_t sequence, std::uint32_t i) const {
    return reinterpret_cast<const float*>(addresses[sequence * stride + i]);
  }
  kernels::KvPages of(const std::vector<std::uint32_t>& sequence_of_row,
                      const std::vector<std::uint32_t>& positions) const {
    return {.pages = addresses.data(),
            .pages_stride = stride,
            .sequence_of_row = sequence_of_row.data(),
            .positions = positions.data()};
  }
  std::vector<float> memory;
  std::uint32_t stride;
  std::vector<std::byte*> addresses;
};

const std::vector<std::uint32_t> kSequences{1, 0, 1}, kPositions{70, 5, 71};

std::vector<float> turned(std::vector<float> head, std::span<const float> inv_freq, RopeLayout layout,
                          std::uint32_t position) {
  reference::rope_exact(head, {.inv_freq = inv_freq,
                               .attn_factor = kFactor,
                               .interleaved = layout == RopeLayout::kInterleaved,
                               .position = position});
  return head;
}
std::span<const float> part(const std::vector<float>& all, std::size_t begin, std::size_t count) {
  return std::span(all).subspan(begin, count);
}

TEST(Heads, AreNormedTurnedAndAppended) {
  HeadsMachine machine;
  Random random(31);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kHeads = 3, kKvHeads = 2, kQk = 10, kV = 7, kRotary = 8;
  constexpr std::size_t kStride = (kHeads + kKvHeads) * kQk + kKvHeads * kV;
  const auto q_norm = random.normals(kQk), k_norm = random.normals(kQk), inv_freq = random.normals(kRotary / 2);
  for (const RopeLayout layout : {RopeLayout::kNone, RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    const std::vector<float> given = random.normals(kPositions.size() * kStride);
    std::vector<float> rows = given;
    const Pages pages(2, 2, kKvHeads * (kQk + kV) * kPage);
    machine.stream.launch<kernels::FinishHeads<DType::kF32>>({kHeads + 2 * kKvHeads, 3},
                                                             {.rows = rows.data(),
                                                              .stride = kStride,
                                                              .heads = kHeads,
                                                              .kv_heads = kKvHeads,
                                                              .d_qk = kQk,
                                                              .d_v = kV,
                                                              .q_norm = q_norm.data(),
                                                              .k_norm = k_norm.data(),
                                                              .eps = kEps,
                                                              .norm_offset = 1.0f,
                                                              .rotation = {.layout = layout,
                                                                           .dims = kRotary,
                                                                           .positions = kPositions.data(),
                                                                           .inv_freq = inv_freq.data(),
                                                                           .factor = kFactor},
                                                              .cache = pages.of(kSequences, kPositions)});
    for (std::uint32_t r = 0; r < kPositions.size(); ++r) {
      const std::uint32_t entry = kPositions[r] % kPage;
      const float* page = pages.page(kSequences[r], kPositions[r] / kPage);
      for (std::uint32_t h = 0; h < kHeads + kKvHeads; ++h) {
        std::vector<float> head =
            reference::rms_norm_exact(part(given, r * kStride + h * kQk, kQk), h < kHeads ? q_norm : k_norm,
                                      {.eps = kEps, .weight_offset = 1.0f});
        if (layout != RopeLayout::kNone) head = turned(head, inv_freq, layout, kPositions[r]);
        for (std::uint32_t i = 0; i < kQk; ++i) {
          const float got =
              h < kHeads ? rows[r * kStride + h * kQk + i] : page[((h - kHeads) * kQk + i) * kPage + entry];
          ASSERT_EQ(got, head[i]) << "row " << r << " head " << h << " element " << i;
        }
      }
      for (std::uint32_t h = 0; h < kKvHeads; ++h)
        for (std::uint32_t i = 0; i < kV; ++i)
          ASSERT_EQ(page[kKvHeads * kQk * kPage + (h * kPage + entry) * kV + i],
                    given[r * kStride + (kHeads + kKvHeads) * kQk + h * kV + i]);
    }
  }
}

TEST(Latents, AreNormedTurnedAppendedAndAttendedTo) {
  HeadsMachine machine;
  Random random(32);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kLatent = 20, kRest = 6, kKey = kLatent + kRest, kHeads = 9, kRows = 40, kNope = 5;
  constexpr std::size_t kStride = kKey + 3;
  const auto norm = random.normals(kLatent), inv_freq = random.normals(kRest / 2);
  const std::vector<float> given = random.normals(kRows * kStride),
                           q = random.normals(kRows * kHeads * (kNope + kRest));
  std::vector<float> rows = given, queries = random.normals(kRows * kHeads * kKey);
  std::vector<std::uint32_t> sequence(kRows, 0), positions(kRows);
  for (std::uint32_t p = 0; p < kRows; ++p) positions[p] = p;
  const Pages pages(1, 1, kKey * kPage);
  const kernels::Rotation rotation{.layout = RopeLayout::kInterleaved,
                                   .dims = kRest,
                                   .positions = positions.data(),
                                   .inv_freq = inv_freq.data(),
                                   .factor = kFactor};
  machine.stream.launch<kernels::FinishLatent<DType::kF32>>({kRows}, {.rows = rows.data(),
                                                                      .stride = kStride,
                                                                      .latent_dim = kLatent,
                                                                      .rest_dim = kRest,
                                                                      .norm = norm.data(),
                                                                      .eps = kEps,
                                                                      .rotation = rotation,
                                                                      .cache = pages.of(sequence, positions)});
  std::vector<float> keys, values;
  for (std::uint32_t p = 0; p < kRows; ++p) {
    std::vector<float> row = reference::rms_norm_exact(part(given, p * kStride, kLatent), norm, {.eps = kEps});
    values.insert(values.end(), row.begin(), row.end());
    const auto rest = part(given, p * kStride + kLatent, kRest);
    const auto tail = turned({rest.begin(), rest.end()}, inv_freq, RopeLayout::kInterleaved, p);
    row.insert(row.end(), tail.begin(), tail.end());
    for (std::uint32_t i = 0; i < kKey; ++i) ASSERT_EQ(pages.page(0, 0)[i * kPage + p], row[i]) << p << ' ' << i;
    keys.insert(keys.end(), row.begin(), row.end());
  }
  machine.stream.launch<kernels::LatentQuery>({kHeads, kRows}, {.q = q.data(),
                                                                .q_stride = kHeads * (kNope + kRest),
                                                                .d_nope = kNope,
                                                                .rest_dim = kRest,
                                                                .latent_dim = kLatent,
                                                                .heads = kHeads,
                                                                .latent = queries.data(),
                                                                .rotation = rotation});
  std::vector<float> out(kRows * kHeads * kLatent), expected;
  machine.stream.launch<kernels::AttentionWhole<kernels::LatentKeys<DType::kF32>>>(
      {2, kRows}, {.q = queries.data(),
                   .q_stride = kHeads * kKey,
                   .out = out.data(),
                   .heads = kHeads,
                   .kv_heads = 1,
                   .d_qk = kKey,
                   .d_v = kLatent,
                   .scale = 0.3f,
                   .from = pages.of(sequence, positions)});
  for (std::uint32_t p = 0; p < kRows; ++p)
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const auto rest = part(q, (p * kHeads + h) * (kNope + kRest) + kNope, kRest);
      const auto tail = turned({rest.begin(), rest.end()}, inv_freq, RopeLayout::kInterleaved, p);
      const auto query = part(queries, (p * kHeads + h) * kKey, kKey);
      ASSERT_TRUE(std::ranges::equal(query.last(kRest), tail)) << p << ' ' << h;
      const auto row = reference::attention_exact(query, part(keys, 0, (p + 1) * kKey),
                                                  part(values, 0, (p + 1) * kLatent), {.position = p, .scale = 0.3f});
      expected.insert(expected.end(), row.begin(), row.end());
    }
  EXPECT_TRUE(same_bits(out, expected));
}

// Rows that see all of their span and nothing of another one.
TEST(Spans, AreAttendedToFromEnds) {
  HeadsMachine machine;
  Random random(33);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kHeads = 4, kKvHeads = 2, kQk = 6, kV = 5, kRows = 70;
  constexpr std::size_t kWidth = (kHeads + kKvHeads) * kQk + kKvHeads * kV;
  const std::vector<float> qkv = random.normals(kRows * kWidth);
  kernels::AttentionArgs<kernels::SpanRows> args{.q = qkv.data(),
                                                 .q_stride = kWidth,
                                                 .heads = kHeads,
                                                 .kv_heads = kKvHeads,
                                                 .d_qk = kQk,
                                                 .d_v = kV,
                                                 .scale = 0.4f};
  args.from = {.keys = qkv.data() + kHeads * kQk,
               .values = qkv.data() + (kHeads + kKvHeads) * kQk,
               .stride = kWidth,
               .frames = {}};
  args.from.frames.count = 2;
  args.from.frames.frame[0] = {.row_begin = 0, .row_end = 9};
  args.from.frames.frame[1] = {.row_begin = 9, .row_end = kRows};
  std::vector<float> out(kRows * kHeads * kV), expected;
  args.out = out.data();
  machine.stream.launch<kernels::AttentionWhole<kernels::SpanKeys>>({kKvHeads, kRows}, args);
  for (std::uint32_t r = 0; r < kRows; ++r)
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const std::uint32_t begin = r < 9 ? 0 : 9, end = r < 9 ? 9 : kRows, kv = h / (kHeads / kKvHeads);
      std::vector<float> keys, values;
      for (std::uint32_t p = begin; p < end; ++p) {
        const auto key = part(qkv, p * kWidth + (kHeads + kv) * kQk, kQk);
        const auto value = part(qkv, p * kWidth + (kHeads + kKvHeads) * kQk + kv * kV, kV);
        keys.insert(keys.end(), key.begin(), key.end());
        values.insert(values.end(), value.begin(), value.end());
      }
      const auto row = reference::attention_exact(part(qkv, r * kWidth + h * kQk, kQk), keys, values,
                                                  {.position = end - begin - 1, .scale = 0.4f});
      expected.insert(expected.end(), row.begin(), row.end());
    }
  EXPECT_TRUE(same_bits(out, expected));
}

TEST(Rows, AreCopiedCombinedKeptAndScattered) {
  HeadsMachine machine;
  Random random(34);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 300, kRows = 6, kUsed = 3, kParts = 2, kImageRows = 8;
  const std::vector<float> x = random.normals(kRows * kWidth), shared = random.normals(kRows * kWidth);
  std::vector<float> y(kRows * kWidth), expected(kRows * kWidth);

  kernels::CopyRowsArgs copy{.x = x.data(), .y = y.data(), .width = kWidth, .rows = {}};
  for (std::uint32_t r = 0; r < kRows; ++r) copy.rows[r] = (r * 5 + 2) % kRows;
  machine.stream.launch<kernels::CopyRows>({2, kRows}, copy);
  for (std::uint32_t r = 0; r < kRows; ++r)
    std::ranges::copy(part(x, copy.rows[r] * kWidth, kWidth), expected.begin() + r * kWidth);
  EXPECT_TRUE(same_bits(y, expected));

  const std::vector<float> of_experts = random.normals(kRows * kUsed * kWidth), weights = random.normals(kRows * kUsed);
  machine.stream.launch<kernels::Combine>({2, kRows}, {.expert_rows = of_experts.data(),
                                                       .weights = weights.data(),
                                                       .shared_rows = shared.data(),
                                                       .y = y.data(),
                                                       .width = kWidth,
                                                       .used = kUsed});
  for (std::uint32_t r = 0; r < kRows; ++r)
    for (std::uint32_t i = 0; i < kWidth; ++i) {
      float sum = 0;
      for (std::uint32_t j = 0; j < kUsed; ++j)
        sum = std::fma(weights[r * kUsed + j], of_experts[(r * kUsed + j) * kWidth + i], sum);
      expected[r * kWidth + i] = sum + shared[r * kWidth + i];
    }
  EXPECT_TRUE(same_bits(y, expected));

  // Two frames of two merged rows each go to rows of their slots' images, part 1; the rows of a batch that stand for them take them.
  std::vector<float> state(2 * kImageRows * kParts * kWidth, -1.0f);
  const kernels::ImageState image{.state = reinterpret_cast<std::byte*>(state.data()),
                                  .state_stride = kImageRows * kParts * kWidth * sizeof(float),
                                  .parts = kParts,
                                  .part = 1,
                                  .width = kWidth};
  const auto kept = [&](std::uint32_t slot, std::uint32_t row) {
    return part(state, ((slot * kImageRows + row) * kParts + 1) * kWidth, kWidth);
  };
  kernels::KeepRowsArgs keep{.x = x.data(), .patches = 4, .image = image, .frames = {}};
  keep.frames.count = 2;
  keep.frames.frame[0] = {.row_begin = 0, .row_end = 8, .slot = 1, .image_begin = 3, .image_end = 5};
  keep.frames.frame[1] = {.row_begin = 8, .row_end = 16, .slot = 0, .image_begin = 0, .image_end = 2};
  machine.stream.launch<kernels::KeepRows>({2, 4}, keep);
  for (std::uint32_t m = 0; m < 4; ++m)
    EXPECT_TRUE(std::ranges::equal(kept(m < 2 ? 1 : 0, m < 2 ? 3 + m : m - 2), part(x, m * kWidth, kWidth))) << m;
  EXPECT_EQ(std::ranges::count(state, -1.0f), std::ptrdiff_t{(2 * kImageRows * kParts - 4) * kWidth});

  // Of three rows of an image there are two.
  const std::vector<std::uint32_t> row_ids{7, 4, 7, 4, 7, 7};
  for (const bool adds : {false, true}) {
    kernels::ScatterArgs scatter{.x = x.data(),
                                 .y = y.data(),
                                 .row_ids = row_ids.data(),
                                 .image_row_ids = {7, 9},
                                 .adds = adds,
                                 .image = image,
                                 .spans = {}};
    scatter.spans.count = 2;
    scatter.spans.frame[0] = {.row_begin = 0, .row_end = 5, .slot = 1, .image_begin = 3, .image_end = 5};
    scatter.spans.frame[1] = {.row_begin = 5, .row_end = 6, .slot = 0, .image_begin = 1, .image_end = 2};
    machine.stream.launch<kernels::Scatter>({kRows}, scatter);
    std::uint32_t next = 3;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const bool takes = row_ids[r] == 7 && (r == 5 || next < 5);
      const auto from = r == 5 ? kept(0, 1) : kept(1, takes ? next++ : 3);
      for (std::uint32_t i = 0; i < kWidth; ++i) {
        const float own = x[r * kWidth + i];
        ASSERT_EQ(y[r * kWidth + i], !takes ? own : adds ? from[i] + own : from[i]) << r << ' ' << i;
      }
    }
  }
}

// Scores of an index, and the bits of the highest, of equal ones the first: the last row has no queries, so its scores are all 0.
TEST(LightningIndex, ScoresAndChooses) {
  HeadsMachine machine;
  Random random(32);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kHeads = 3, kDims = 10, kStride = kHeads * kDims + kHeads, kWords = 5, kPagesEach = 3;
  const std::vector<std::uint32_t> sequences{1, 0, 1, 0}, positions{129, 5, 130, 70};
  Pages pages(2, kPagesEach, kDims * kPage);
  for (float& value : pages.memory) value = random.normal();
  std::vector<float> rows = random.normals(positions.size() * kStride);
  std::fill_n(rows.end() - kStride, kHeads * kDims, 0.0f);
  constexpr std::uint64_t kScores = kPagesEach * kPage;
  std::vector<float> scores(positions.size() * kScores, NAN);
  machine.stream.launch<kernels::IndexScores<DType::kF32>>({kPagesEach, 4}, {.cache = pages.of(sequences, positions),
                                                                             .q = rows.data(),
                                                                             .weights = rows.data() + kHeads * kDims,
                                                                             .stride = kStride,
                                                                             .scores = scores.data(),
                                                                             .scores_stride = kScores,
                                                                             .heads = kHeads,
                                                                             .dims = kDims,
                                                                             .scale = 0.3f});
  for (const std::uint32_t top_k : {1u, 7u, 64u, 200u}) {
    std::vector<std::uint32_t> bits(positions.size() * kWords, 0xFFFFFFFFu);
    machine.stream.launch<kernels::IndexChoose>({4}, {.scores = scores.data(),
                                                      .positions = positions.data(),
                                                      .bits = bits.data(),
                                                      .scores_stride = kScores,
                                                      .words = kWords,
                                                      .top_k = top_k});
    for (std::uint32_t r = 0; r < positions.size(); ++r) {
      const std::uint32_t count = positions[r] + 1;
      std::vector<float> keys;
      for (std::uint32_t p = 0; p < count; ++p)
        for (std::uint32_t i = 0; i < kDims; ++i)
          keys.push_back(pages.page(sequences[r], p / kPage)[i * kPage + p % kPage]);
      const auto expected = reference::index_scores_exact(part(rows, r * kStride, kHeads * kDims),
                                                          part(rows, r * kStride + kHeads * kDims, kHeads), keys, 0.3f);
      ASSERT_TRUE(same_bits(std::vector(scores.begin() + static_cast<std::ptrdiff_t>(r * kScores),
                                        scores.begin() + static_cast<std::ptrdiff_t>(r * kScores + count)),
                            expected));
      std::vector<std::uint32_t> order(count), chosen(kWords);
      for (std::uint32_t p = 0; p < count; ++p) order[p] = p;
      std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return expected[a] > expected[b]; });
      for (std::uint32_t i = 0; i < std::min(count, top_k); ++i) chosen[order[i] / 32] |= 1u << order[i] % 32;
      EXPECT_TRUE(std::ranges::equal(std::span(bits).subspan(r * kWords, kWords), chosen))
          << "row " << r << " " << top_k;
    }
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
