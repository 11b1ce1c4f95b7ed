#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::adapters::mixers {
namespace {

using plan::DType;
using plan::kind_version;
using plan::MlaAttentionParams;
using plan::MlaSlot;
using plan::Opcode;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;
using testing::same_bits;
using Row = std::span<const float>;

struct MlaCase {
  DType weights, kv;
  plan::RopeLayout rope;
  std::uint32_t heads, q_lora, kv_lora, d_nope, d_rope, d_v;
  bool biases;
};
const MlaCase kMlaCases[] = {
    {DType::kF32, DType::kF32, plan::RopeLayout::kInterleaved, 5, 24, 40, 20, 12, 18, true},
    {DType::kF32, DType::kF16, plan::RopeLayout::kHalf, 3, 0, 33, 7, 8, 9, true},
    {DType::kQ8_0, DType::kF16, plan::RopeLayout::kInterleaved, 8, 32, 64, 32, 16, 32, false},
    {DType::kQ4_0, DType::kF32, plan::RopeLayout::kNone, 4, 0, 32, 32, 4, 24, false},
};

// A whole instruction and its scalar reference, over two sequences of which one grows in chunks beside the other.
class MlaWorld {
 public:
  static constexpr std::uint32_t kWidth = 64, kLength = 70;
  static constexpr float kScale = 0.21f, kEps = 1e-6f;

  MlaWorld(Random& random, const MlaCase& c) : c_(c), weights_(static_cast<std::size_t>(MlaSlot::kCount)) {
    using enum MlaSlot;
    const auto matrix = [&](std::vector<std::uint32_t> shape) {
      return HarnessWeight::random(random, c.weights, std::move(shape));
    };
    const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
    if (c.q_lora != 0) {
      at(kQA) = matrix({c.q_lora, kWidth}), at(kQANorm) = vector(c.q_lora), at(kQB) = matrix({q_width(), c.q_lora});
    } else {
      at(kQ) = matrix({q_width(), kWidth});
    }
    at(kKvA) = matrix({key_dim(), kWidth}), at(kKvANorm) = vector(c.kv_lora);
    at(kKB) = matrix({c.heads, c.kv_lora, c.d_nope}), at(kVB) = matrix({c.heads, c.d_v, c.kv_lora});
    at(kO) = matrix({kWidth, c.heads * c.d_v});
    if (c.biases) {
      if (c.q_lora != 0) at(kQABias) = vector(c.q_lora);
      at(kKvABias) = vector(key_dim()), at(kOBias) = vector(kWidth);
    }
    for (std::size_t i = 0; i < c.d_rope / 2; ++i) inv_freq_.push_back(std::pow(100.0f, -static_cast<float>(i) / 6));
    x_ = random.normals(kLength * kWidth);
  }

  MlaAttentionParams params() const {
    MlaAttentionParams p{};
    p.kind_version = kind_version(Opcode::kMlaAttention);
    p.width = kWidth, p.heads = c_.heads, p.q_lora = c_.q_lora, p.kv_lora = c_.kv_lora, p.d_nope = c_.d_nope;
    p.d_rope = c_.d_rope, p.d_v = c_.d_v, p.rope_table_id = 0, p.scale = kScale, p.norm_eps = kEps;
    p.kv_page_offset_bytes = 128, p.rope_layout = c_.rope, p.kv_dtype = static_cast<std::uint8_t>(c_.kv);
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  // The sequence on slot 1, `chunk` rows a step, each step after a row of a second sequence on slot 0.
  std::vector<float> run(const HarnessOptions& device, std::uint32_t chunk) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const plan::KvLayout layout{.dtype = c_.kv, .kv_heads = 1, .d_qk = key_dim(), .d_v = 0};
    std::vector<std::vector<std::byte>> pages(4, std::vector<std::byte>(128 + layout.page_bytes(), std::byte{0xFF}));
    std::vector<std::byte*> table;
    for (std::size_t i : {2, 0, 3, 1}) table.push_back(pages[i].data());
    const plan::RopeTable rope{inv_freq_.data(), c_.d_rope / 2, 1.25f};
    std::vector<float> out;
    std::uint32_t other = 0;
    for (std::uint32_t at = 0; at < kLength; at += chunk, ++other) {
      const std::uint32_t n = std::min(chunk, kLength - at), rows = n + 1;
      std::vector<float> x(x_.rbegin(), x_.rbegin() + kWidth), y(rows * kWidth);
      x.insert(x.end(), x_.begin() + at * kWidth, x_.begin() + (at + n) * kWidth);
      std::vector<std::uint32_t> positions{other}, slots{0};
      for (std::uint32_t i = 0; i < n; ++i) positions.push_back(at + i), slots.push_back(1);
      plan::ExecutionContext ctx;
      ctx.total_rows = rows, ctx.positions = positions.data(), ctx.slot_of_row = slots.data();
      ctx.rope_tables = {&rope, 1};
      harness.set_state({.pages = table.data(), .pages_stride = 2});
      harness.run(ctx, {x.data()}, y.data());
      out.insert(out.end(), y.begin() + kWidth, y.end());
    }
    return out;
  }

  std::vector<float> expected() {
    using enum MlaSlot;
    const std::vector<float> q = queries(), rows = cache_rows();
    std::vector<float> attended;
    for (std::uint32_t p = 0; p < kLength; ++p)
      for (std::uint32_t h = 0; h < c_.heads; ++h) {
        const Row head = Row(q).subspan(p * q_width() + h * head_dim(), head_dim());
        auto latent_q = head_matmul(at(kKB), h, head.first(c_.d_nope));
        latent_q.insert(latent_q.end(), head.begin() + c_.d_nope, head.end());
        const auto latent = reference::latent_attention_exact(
            latent_q, rows, {.position = p, .latent_dim = c_.kv_lora, .scale = kScale});
        const auto o = head_matmul(at(kVB), h, latent);
        attended.insert(attended.end(), o.begin(), o.end());
      }
    auto y = matmul_rows(at(kO), attended);
    if (c_.biases) testing::add_bias(y, at(kOBias).floats());
    return y;
  }

  // The direct form in double, keys and values of every head expanded, from the queries and cache rows of the reference.
  // REQUIRES: F32 weights and cache.
  std::vector<double> direct() {
    using enum MlaSlot;
    const std::vector<float> q = queries(), rows = cache_rows();
    const auto k_b = at(kKB).floats(), v_b = at(kVB).floats(), o = at(kO).floats(), bias = at(kOBias).floats();
    const auto row_dot = [&](const std::vector<float>& w, std::size_t first, std::size_t step, std::uint32_t position) {
      double sum = 0;
      for (std::size_t i = 0; i < c_.kv_lora; ++i)
        sum += static_cast<double>(w[first + i * step]) * rows[position * key_dim() + i];
      return sum;
    };
    std::vector<double> y;
    for (std::uint32_t p = 0; p < kLength; ++p) {
      std::vector<double> attended;
      for (std::uint32_t h = 0; h < c_.heads; ++h) {
        const Row head = Row(q).subspan(p * q_width() + h * head_dim(), head_dim());
        std::vector<double> weights;
        double total = 0;
        for (std::uint32_t j = 0; j <= p; ++j) {
          double score = 0;
          for (std::size_t i = 0; i < c_.d_nope; ++i)
            score += head[i] * row_dot(k_b, h * c_.kv_lora * c_.d_nope + i, c_.d_nope, j);
          for (std::size_t i = 0; i < c_.d_rope; ++i)
            score += static_cast<double>(head[c_.d_nope + i]) * rows[j * key_dim() + c_.kv_lora + i];
          weights.push_back(std::exp(score * static_cast<double>(kScale)));
          total += weights.back();
        }
        for (std::size_t i = 0; i < c_.d_v; ++i) {
          double sum = 0;
          for (std::uint32_t j = 0; j <= p; ++j)
            sum += weights[j] / total * row_dot(v_b, (h * c_.d_v + i) * c_.kv_lora, 1, j);
          attended.push_back(sum);
        }
      }
      for (std::size_t n = 0; n < kWidth; ++n) {
        double sum = bias.empty() ? 0 : bias[n];
        for (std::size_t i = 0; i < attended.size(); ++i) sum += o[n * attended.size() + i] * attended[i];
        y.push_back(sum);
      }
    }
    return y;
  }

 private:
  HarnessWeight& at(MlaSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  std::uint32_t head_dim() const { return c_.d_nope + c_.d_rope; }
  std::uint32_t q_width() const { return c_.heads * head_dim(); }
  std::uint32_t key_dim() const { return c_.kv_lora + c_.d_rope; }

  static void norm(std::span<float> x, const std::vector<float>& weight) {
    const auto y = reference::rms_norm_exact(x, weight, {.eps = kEps, .weight_offset = 0});
    std::copy(y.begin(), y.end(), x.begin());
  }
  void turn(std::span<float> x, std::uint32_t position) const {
    if (c_.rope == plan::RopeLayout::kNone) return;
    reference::RopeOptions options;
    options.inv_freq = inv_freq_, options.attn_factor = 1.25f, options.position = position;
    options.interleaved = c_.rope == plan::RopeLayout::kInterleaved;
    reference::rope_exact(x, options);
  }
  std::vector<float> queries() {
    using enum MlaSlot;
    std::vector<float> q;
    if (c_.q_lora != 0) {
      auto compressed = matmul_rows(at(kQA), x_);
      if (c_.biases) testing::add_bias(compressed, at(kQABias).floats());
      for (std::uint32_t p = 0; p < kLength; ++p)
        norm(std::span(compressed).subspan(p * c_.q_lora, c_.q_lora), at(kQANorm).floats());
      q = matmul_rows(at(kQB), compressed);
    } else {
      q = matmul_rows(at(kQ), x_);
    }
    for (std::uint32_t i = 0; i < kLength * c_.heads; ++i)
      turn(std::span(q).subspan(i * head_dim() + c_.d_nope, c_.d_rope), i / c_.heads);
    return q;
  }
  std::vector<float> cache_rows() {
    using enum MlaSlot;
    auto rows = matmul_rows(at(kKvA), x_);
    if (c_.biases) testing::add_bias(rows, at(kKvABias).floats());
    for (std::uint32_t p = 0; p < kLength; ++p) {
      const std::span<float> row = std::span(rows).subspan(p * key_dim(), key_dim());
      norm(row.first(c_.kv_lora), at(kKvANorm).floats());
      turn(row.subspan(c_.kv_lora), p);
    }
    if (c_.kv == DType::kF16)
      for (float& v : rows) v = half_to_float(float_to_half(v));
    return rows;
  }
  static std::vector<float> head_matmul(const HarnessWeight& stack, std::uint32_t head, Row x) {
    const std::size_t bytes = stack.stored.size() / stack.shape[0];
    return reference::matmul_exact(stack.dtype, std::span(stack.stored).subspan(head * bytes, bytes), stack.shape[1],
                                   x);
  }

  MlaCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> inv_freq_, x_;
};

TEST(MlaAttention, EqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(72);
  for (const MlaCase& c : kMlaCases) {
    MlaWorld world(random, c);
    const auto expected = world.expected();
    for (const auto& device : testing::devices())
      for (std::uint32_t chunk : {1u, 7u, 63u})  // 63 and the neighbour take two tiles of rows
        ASSERT_TRUE(same_bits(world.run(device, chunk), expected))
            << "heads " << c.heads << " " << device.isa << " threads " << device.threads << " chunk " << chunk << " "
            << random.note();
  }
}

TEST(MlaAttention, AbsorbedIsTheDirectForm) {
  Random random(73);
  SCOPED_TRACE(random.note());
  MlaWorld world(random, kMlaCases[0]);
  const auto exact = world.direct();
  const auto y = world.run(testing::devices().back(), 63);
  double largest = 0;
  for (double v : exact) largest = std::max(largest, std::fabs(v));
  // Scores of magnitude up to 16 from 20 and then 52 products: 72 * 16 * 2^-24 in the exponent; behind it 70 positions,
  // 40 and 90 products of sums of magnitudes some four times the result: 200 * 4 * 2^-24.
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(y[i], exact[i], 1.2e-4 * largest) << i;
}

TEST(MlaAttention, WhatItCannotDoIsRefusedAtLoad) {
  Random random(74);
  MlaWorld world(random, kMlaCases[0]);
  const auto code = [&](auto change) {
    MlaAttentionParams params = world.params();
    auto weights = world.weights();
    change(params, weights);
    const Harness harness(params, weights, {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  using Weights = std::vector<HarnessWeight>;
  const auto slot = [](MlaSlot s) { return static_cast<std::size_t>(s); };
  EXPECT_EQ(code([](MlaAttentionParams&, Weights&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](MlaAttentionParams& p, Weights&) { p.rope_layout = plan::RopeLayout::kVision2d; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MlaAttentionParams& p, Weights&) { p.kv_dtype = static_cast<std::uint8_t>(DType::kBF16); }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MlaAttentionParams& p, Weights&) { p.q_lora = 0; }), ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code([&](MlaAttentionParams&, Weights& w) { w[slot(MlaSlot::kQB)] = {}; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MlaAttentionParams& p, Weights&) { p.d_v = 17; }), ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code([&](MlaAttentionParams&, Weights& w) {
              w[slot(MlaSlot::kKB)] = HarnessWeight::random(random, DType::kF32, {4, 40, 20});
            }),
            ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::mixers
