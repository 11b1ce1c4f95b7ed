#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::adapters::mixers {
namespace {

using plan::DType;
using plan::IndexSlot;
using plan::kind_version;
using plan::LightningIndexParams;
using plan::Opcode;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;

struct IndexCase {
  DType weights, kv;
  plan::RopeLayout rope;
  std::uint32_t heads, q_lora, d_index, d_rope, top_k;
  bool bias;
};
const IndexCase kIndexCases[] = {{DType::kF32, DType::kF32, plan::RopeLayout::kHalf, 5, 24, 20, 12, 9, true},
                                 {DType::kF32, DType::kF16, plan::RopeLayout::kInterleaved, 3, 7, 8, 8, 1, false},
                                 {DType::kQ8_0, DType::kF16, plan::RopeLayout::kHalf, 8, 32, 32, 16, 64, false},
                                 {DType::kF32, DType::kF32, plan::RopeLayout::kHalf, 2, 8, 16, 4, 100, false}};

// A whole instruction and its scalar reference, over two sequences of which one grows in chunks beside the other.
class IndexWorld {
 public:
  static constexpr std::uint32_t kWidth = 64, kLength = 70, kWords = 8;
  static constexpr float kScale = 0.21f, kEps = 1e-6f;

  IndexWorld(Random& random, const IndexCase& c) : c_(c), weights_(static_cast<std::size_t>(IndexSlot::kCount)) {
    using enum IndexSlot;
    const auto matrix = [&](std::uint32_t rows, std::uint32_t cols) {
      return HarnessWeight::random(random, c.weights, {rows, cols});
    };
    const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
    at(kQA) = matrix(c.q_lora, kWidth), at(kQANorm) = vector(c.q_lora), at(kQB) = matrix(c.heads * c.d_index, c.q_lora);
    at(kK) = matrix(c.d_index, kWidth), at(kKNorm) = vector(c.d_index), at(kKNormBias) = vector(c.d_index);
    at(kWeights) = matrix(c.heads, kWidth);
    if (c.bias) at(kQABias) = vector(c.q_lora);
    for (std::size_t i = 0; i < c.d_rope / 2; ++i) inv_freq_.push_back(std::pow(100.0f, -static_cast<float>(i) / 6));
    x_ = random.normals(kLength * kWidth);
  }

  LightningIndexParams params() const {
    LightningIndexParams p{};
    p.kind_version = kind_version(Opcode::kLightningIndex);
    p.width = kWidth, p.q_lora = c_.q_lora, p.heads = c_.heads, p.d_index = c_.d_index, p.d_rope = c_.d_rope;
    p.top_k = c_.top_k, p.words = kWords, p.rope_table_id = 0, p.scale = kScale, p.q_norm_eps = p.k_norm_eps = kEps;
    p.kv_page_offset_bytes = 128, p.rope_layout = c_.rope, p.kv_dtype = static_cast<std::uint8_t>(c_.kv);
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  // The sequence on slot 1, `chunk` rows a step, each step after a row of a second sequence on slot 0.
  std::vector<std::uint32_t> run(const HarnessOptions& device, std::uint32_t chunk) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const plan::KvLayout layout{.dtype = c_.kv, .kv_heads = 1, .d_qk = c_.d_index, .d_v = 0};
    std::vector<std::vector<std::byte>> pages(4, std::vector<std::byte>(128 + layout.page_bytes(), std::byte{0xFF}));
    std::vector<std::byte*> table;
    for (std::size_t i : {2, 0, 3, 1}) table.push_back(pages[i].data());
    const plan::RopeTable rope{inv_freq_.data(), c_.d_rope / 2, 1.25f};
    std::vector<std::uint32_t> out;
    std::uint32_t other = 0;
    for (std::uint32_t at = 0; at < kLength; at += chunk, ++other) {
      const std::uint32_t n = std::min(chunk, kLength - at), rows = n + 1;
      std::vector<float> x(x_.rbegin(), x_.rbegin() + kWidth), bits(rows * kWords);
      x.insert(x.end(), x_.begin() + at * kWidth, x_.begin() + (at + n) * kWidth);
      std::vector<std::uint32_t> positions{other}, slots{0};
      for (std::uint32_t i = 0; i < n; ++i) positions.push_back(at + i), slots.push_back(1);
      plan::ExecutionContext ctx;
      ctx.total_rows = rows, ctx.positions = positions.data(), ctx.slot_of_row = slots.data();
      ctx.rope_tables = {&rope, 1};
      harness.set_state({.pages = table.data(), .pages_stride = 2});
      harness.run(ctx, {x.data()}, bits.data());
      const std::size_t first = out.size();
      out.resize(first + n * kWords);
      std::memcpy(out.data() + first, bits.data() + kWords, n * kWords * sizeof bits[0]);
    }
    return out;
  }

  std::vector<std::uint32_t> expected() {
    using enum IndexSlot;
    auto q_a = matmul_rows(at(kQA), x_);
    if (c_.bias) testing::add_bias(q_a, at(kQABias).floats());
    for (std::uint32_t p = 0; p < kLength; ++p) {
      const auto row = std::span(q_a).subspan(p * c_.q_lora, c_.q_lora);
      std::ranges::copy(reference::rms_norm_exact(row, at(kQANorm).floats(), {.eps = kEps, .weight_offset = 0}),
                        row.begin());
    }
    auto q = matmul_rows(at(kQB), q_a), k = matmul_rows(at(kK), x_);
    const auto w = matmul_rows(at(kWeights), x_);
    for (std::uint32_t p = 0; p < kLength; ++p) {
      const auto row = std::span(k).subspan(p * c_.d_index, c_.d_index);
      std::ranges::copy(reference::layer_norm_exact(row, at(kKNorm).floats(), at(kKNormBias).floats(), kEps),
                        row.begin());
      turn(row, p);
      for (std::uint32_t h = 0; h < c_.heads; ++h)
        turn(std::span(q).subspan((p * c_.heads + h) * c_.d_index, c_.d_index), p);
    }
    if (c_.kv == DType::kF16)
      for (float& v : k) v = half_to_float(float_to_half(v));
    std::vector<std::uint32_t> bits(kLength * kWords);
    for (std::uint32_t p = 0; p < kLength; ++p) {
      const auto scores = reference::index_scores_exact(
          std::span(q).subspan(p * c_.heads * c_.d_index, c_.heads * c_.d_index),
          std::span(w).subspan(p * c_.heads, c_.heads), std::span(k).first((p + 1) * c_.d_index), kScale);
      std::vector<std::uint32_t> order(p + 1);
      std::iota(order.begin(), order.end(), 0u);
      std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
      for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), c_.top_k); ++i)
        bits[p * kWords + order[i] / 32] |= 1U << order[i] % 32;
    }
    return bits;
  }

 private:
  HarnessWeight& at(IndexSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  void turn(std::span<float> head, std::uint32_t position) const {
    reference::RopeOptions options;
    options.inv_freq = inv_freq_, options.attn_factor = 1.25f, options.position = position;
    options.interleaved = c_.rope == plan::RopeLayout::kInterleaved;
    reference::rope_exact(head.first(c_.d_rope), options);
  }

  IndexCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> inv_freq_, x_;
};

TEST(LightningIndex, ChoosesTheHighestWhateverTheChunksAndNeighbours) {
  Random random(77);
  for (const IndexCase& c : kIndexCases) {
    IndexWorld world(random, c);
    const auto expected = world.expected();
    for (const auto& device : testing::devices())
      for (std::uint32_t chunk : {1u, 7u, 63u})
        ASSERT_EQ(world.run(device, chunk), expected) << "top " << c.top_k << " " << device.isa << " threads "
                                                      << device.threads << " chunk " << chunk << " " << random.note();
  }
}

// Without queries every score is 0, and of equal ones the first are chosen.
TEST(LightningIndex, OfEqualScoresTakesTheFirst) {
  Random random(78);
  IndexWorld world(random, kIndexCases[0]);
  HarnessWeight& q_b = world.weights()[static_cast<std::size_t>(IndexSlot::kQB)];
  std::ranges::fill(q_b.stored, std::byte{0});
  const auto bits = world.run(testing::devices().back(), 7);
  for (std::uint32_t p = 0; p < IndexWorld::kLength; ++p)
    EXPECT_EQ(bits[p * IndexWorld::kWords], (1U << std::min(p + 1, kIndexCases[0].top_k)) - 1) << p;
}

TEST(LightningIndex, WhatItCannotDoIsRefusedAtLoad) {
  Random random(79);
  IndexWorld world(random, kIndexCases[0]);
  const auto code = [&](auto change) {
    LightningIndexParams params = world.params();
    change(params);
    const Harness harness(params, world.weights(), {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  EXPECT_EQ(code([](LightningIndexParams&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](LightningIndexParams& p) { p.rope_layout = plan::RopeLayout::kNone; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](LightningIndexParams& p) { p.d_rope = 22; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](LightningIndexParams& p) { p.top_k = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](LightningIndexParams& p) { p.words = 7; }), ErrorCode::kUnsupportedOpcode);  // a context of 256
  EXPECT_EQ(code([](LightningIndexParams& p) { p.heads = 4; }), ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::mixers
