#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using contract::AttentionParams;
using contract::DType;
using contract::kind_version;
using contract::Opcode;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::Random;
using testing::same_bits;
using Row = std::span<const float>;

std::vector<HarnessOptions> devices() {
  std::vector<HarnessOptions> out;
  for (host::Isa isa : testing::isas())
    for (std::uint32_t threads : {1u, 3u}) {
      out.push_back({});
      out.back().isa = host::isa_name(isa);
      out.back().threads = threads;
    }
  return out;
}

std::vector<float> matmul_rows(const HarnessWeight& w, const std::vector<float>& x) {
  std::vector<float> out;
  for (std::size_t r = 0; r < x.size(); r += w.shape[1]) {
    const auto y = reference::matmul_exact(w.dtype, w.stored, w.shape[0], Row(x).subspan(r, w.shape[1]));
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

constexpr std::size_t kRows = 9;

TEST(Adapters, EmbeddingScalesExactRows) {
  Random random(40);
  SCOPED_TRACE(random.note());
  const contract::EmbeddingParams params{kind_version(Opcode::kEmbedding), 50, 64, 3.0f};
  const auto w = HarnessWeight::random(random, DType::kQ4_0, {50, 64});
  const auto table = reference::dequantise(w.dtype, w.stored, 50, 64);
  std::vector<std::uint32_t> ids(kRows);
  for (auto& id : ids) id = static_cast<std::uint32_t>(random.below(50));
  std::vector<float> expected;
  for (auto id : ids)
    for (std::size_t k = 0; k < 64; ++k) expected.push_back(3.0f * table[id * 64 + k]);
  for (const auto& device : devices()) {
    Harness harness(params, {w}, device);
    std::vector<float> y(expected.size());
    contract::ExecutionContext ctx;
    ctx.total_rows = kRows;
    ctx.row_ids = ids.data();
    harness.run(ctx, {}, y.data());
    EXPECT_TRUE(same_bits(y, expected)) << device.isa;
  }
}

TEST(Adapters, NormAndResidual) {
  Random random(41);
  SCOPED_TRACE(random.note());
  contract::RmsNormParams norm{};
  norm.kind_version = kind_version(Opcode::kRmsNorm), norm.width = 96, norm.eps = 1e-5f, norm.weight_offset = 1;
  const contract::ResidualAddParams add{kind_version(Opcode::kResidualAdd), 96, 0.22f, 0};
  const auto w = HarnessWeight::random(random, DType::kF32, {96});
  const auto x = random.normals(kRows * 96), b = random.normals(kRows * 96);
  std::vector<float> normed, sums;
  for (std::size_t r = 0; r < kRows; ++r) {
    const auto y =
        reference::rms_norm_exact(Row(x).subspan(r * 96, 96), w.floats(), {.eps = 1e-5f, .weight_offset = 1});
    normed.insert(normed.end(), y.begin(), y.end());
  }
  for (std::size_t i = 0; i < x.size(); ++i) sums.push_back(std::fma(0.22f, b[i], x[i]));
  for (const auto& device : devices()) {
    contract::ExecutionContext ctx;
    ctx.total_rows = kRows;
    std::vector<float> y(x.size());
    Harness(norm, {w}, device).run(ctx, {x.data()}, y.data());
    EXPECT_TRUE(same_bits(y, normed)) << device.isa;
    y = x;
    Harness(add, {}, device).run(ctx, {y.data(), b.data()}, y.data());  // in place
    EXPECT_TRUE(same_bits(y, sums)) << device.isa;
  }
}

void add_bias(std::vector<float>& y, const std::vector<float>& bias) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

TEST(Adapters, FeedForwardWithAndWithoutBias) {
  Random random(42);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 64, kHidden = 160;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
    const bool bias = dtype == DType::kF32 || dtype == DType::kQ8_0;
    const auto matrix = [&](std::uint32_t n, std::uint32_t k) { return HarnessWeight::random(random, dtype, {n, k}); };
    const auto vector = [&](std::uint32_t n) {
      return bias ? HarnessWeight::random(random, DType::kF32, {n}) : HarnessWeight{};
    };
    const auto gate = matrix(kHidden, kWidth), up = matrix(kHidden, kWidth), down = matrix(kWidth, kHidden);
    const auto gate_bias = vector(kHidden), up_bias = vector(kHidden), down_bias = vector(kWidth);
    const auto x = random.normals(kRows * kWidth);
    auto hidden = matmul_rows(gate, x), ups = matmul_rows(up, x);
    if (bias) add_bias(hidden, gate_bias.floats()), add_bias(ups, up_bias.floats());
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = reference::silu_exact(hidden[i]) * ups[i];
    auto expected = matmul_rows(down, hidden);
    if (bias) add_bias(expected, down_bias.floats());
    contract::SwigluParams params{};
    params.kind_version = kind_version(Opcode::kSwiglu), params.width = kWidth, params.ffn = kHidden;
    params.gated = 1;
    const std::vector weights{gate, up, down, gate_bias, up_bias, down_bias};
    for (const auto& device : devices()) {
      Harness harness(params, weights, device);
      ASSERT_FALSE(harness.error()) << harness.error()->message;
      std::vector<float> y(expected.size());
      contract::ExecutionContext ctx;
      ctx.total_rows = kRows;
      harness.run(ctx, {x.data()}, y.data());
      EXPECT_TRUE(same_bits(y, expected)) << device.isa;
    }
  }
}

TEST(Adapters, LmHeadTakesTheWantedRows) {
  Random random(43);
  SCOPED_TRACE(random.note());
  const contract::LmHeadParams params{kind_version(Opcode::kLmHead), 77, 64, 0.5f, 30.0f, 0, {}};
  const auto w = HarnessWeight::random(random, DType::kQ8_0, {77, 64});
  const auto x = random.normals(kRows * 64);
  const std::vector<std::uint32_t> wanted = {1, 4, 8};
  std::vector<float> chosen;
  for (auto r : wanted) chosen.insert(chosen.end(), x.begin() + r * 64, x.begin() + (r + 1) * 64);
  auto expected = matmul_rows(w, chosen);
  for (float& y : expected) y = reference::softcap_exact(y * 0.5f, 30.0f);
  for (const auto& device : devices()) {
    Harness harness(params, {w}, device);
    std::vector<float> y(expected.size());
    contract::ExecutionContext ctx;
    ctx.total_rows = kRows;
    ctx.output_rows = wanted;
    harness.run(ctx, {x.data()}, y.data());
    EXPECT_TRUE(same_bits(y, expected)) << device.isa;
    ctx.output_rows = {};
    harness.run(ctx, {x.data()}, nullptr);  // nothing wanted: nothing written
  }
}

// A whole attention instruction and its twin, over two sequences of which one grows in chunks beside the other.
struct AttentionCase {
  DType weights, kv;
  contract::RopeLayout rope;
  bool norm, bias;
};

class AttentionWorld {
 public:
  static constexpr std::uint32_t kWidth = 96, kHeads = 6, kKvHeads = 2, kDim = 16, kRotary = 12, kLength = 70,
                                 kWindow = 40;

  AttentionWorld(Random& random, const AttentionCase& c)
      : c_(c), weights_(static_cast<std::size_t>(contract::AttentionSlot::kCount)) {
    using enum contract::AttentionSlot;
    const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
      return HarnessWeight::random(random, c.weights, {n, k});
    };
    const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
    q_ = matrix(kHeads * kDim, kWidth), k_ = matrix(kKvHeads * kDim, kWidth), v_ = matrix(kKvHeads * kDim, kWidth);
    at(kQ) = q_, at(kK) = k_, at(kV) = v_;
    at(kO) = matrix(kWidth, kHeads * kDim);
    if (c.norm) at(kQNorm) = vector(kDim), at(kKNorm) = vector(kDim);
    if (c.bias)
      at(kQBias) = vector(kHeads * kDim), at(kKBias) = vector(kKvHeads * kDim), at(kVBias) = vector(kKvHeads * kDim),
      at(kOBias) = vector(kWidth);
    for (std::size_t i = 0; i < kRotary / 2; ++i) inv_freq_.push_back(std::pow(100.0f, -static_cast<float>(i) / 6));
    x_ = random.normals(kLength * kWidth);
  }

  AttentionParams params() const {
    AttentionParams p{};
    p.kind_version = kind_version(Opcode::kMultiheadAttention);
    p.width = kWidth, p.heads = kHeads, p.kv_heads = kKvHeads, p.d_qk = kDim, p.d_v = kDim, p.window = kWindow,
    p.scale = 0.25f;
    p.rope_layout = c_.rope, p.causal = 1, p.kv_dtype = static_cast<std::uint8_t>(c_.kv), p.kv_page_offset_bytes = 64;
    p.rotary_dims = c_.rope == contract::RopeLayout::kNone ? 0 : kRotary, p.rope_table_id = 0;
    p.has_qkv_bias = p.has_o_bias = c_.bias;
    p.qk_norm = c_.norm ? contract::QkNorm::kPerHead : contract::QkNorm::kNone, p.qk_norm_eps = 1e-6f;
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  // The sequence on slot 1, `chunk` rows a step, each step after the single row of a second sequence on slot 0.
  std::vector<float> run(const HarnessOptions& device, std::uint32_t chunk) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const contract::KvLayout layout{.dtype = c_.kv, .kv_heads = kKvHeads, .d_qk = kDim, .d_v = kDim};
    std::vector<std::vector<std::byte>> pages(4, std::vector<std::byte>(64 + layout.page_bytes(), std::byte{0xFF}));
    std::vector<std::byte*> table;
    for (std::size_t i : {2, 0, 3, 1}) table.push_back(pages[i].data());
    const contract::RopeTable rope{inv_freq_.data(), kRotary / 2, 1.25f};
    std::vector<float> out;
    std::uint32_t other = 0;  // position of the second sequence
    for (std::uint32_t at = 0; at < kLength; at += chunk, ++other) {
      const std::uint32_t n = std::min(chunk, kLength - at), rows = n + 1;
      std::vector<float> x(x_.rbegin(), x_.rbegin() + kWidth), y(rows * kWidth);
      x.insert(x.end(), x_.begin() + at * kWidth, x_.begin() + (at + n) * kWidth);
      std::vector<std::uint32_t> positions{other}, slots{0};
      for (std::uint32_t i = 0; i < n; ++i) positions.push_back(at + i), slots.push_back(1);
      contract::ExecutionContext ctx;
      ctx.total_rows = rows, ctx.positions = positions.data(), ctx.slot_of_row = slots.data();
      ctx.kv_pages = table.data(), ctx.kv_pages_stride = 2, ctx.rope_tables = {&rope, 1};
      harness.run(ctx, {x.data()}, y.data());
      out.insert(out.end(), y.begin() + kWidth, y.end());
    }
    return out;
  }

  std::vector<float> expected() {
    using enum contract::AttentionSlot;
    auto q = heads(q_, kQBias, kQNorm, kHeads, true), k = heads(k_, kKBias, kKNorm, kKvHeads, true),
         v = heads(v_, kVBias, kKNorm, kKvHeads, false);
    if (c_.kv == DType::kF16)
      for (auto* cached : {&k, &v})
        for (float& value : *cached) value = half_to_float(float_to_half(value));
    std::vector<float> attended(kLength * kHeads * kDim);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const auto keys = column(k, h / (kHeads / kKvHeads)), values = column(v, h / (kHeads / kKvHeads));
      for (std::uint32_t p = 0; p < kLength; ++p) {
        const std::size_t begin = (p * kHeads + h) * kDim;
        const auto o = reference::attention_exact(Row(q).subspan(begin, kDim), Row(keys).first((p + 1) * kDim),
                                                  Row(values).first((p + 1) * kDim),
                                                  {.position = p, .window = kWindow, .scale = 0.25f, .softcap = 0});
        std::copy(o.begin(), o.end(), attended.begin() + static_cast<std::ptrdiff_t>(begin));
      }
    }
    auto y = matmul_rows(at(kO), attended);
    if (c_.bias) add_bias(y, at(kOBias).floats());
    return y;
  }

 private:
  HarnessWeight& at(contract::AttentionSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }

  // Projected, biased and, for queries and keys, normed and rotated: [positions, heads, dim].
  std::vector<float> heads(const HarnessWeight& w, contract::AttentionSlot bias, contract::AttentionSlot norm,
                           std::uint32_t count, bool turn) {
    auto y = matmul_rows(w, x_);
    if (c_.bias) add_bias(y, at(bias).floats());
    if (!turn) return y;
    for (std::uint32_t i = 0; i < kLength * count; ++i) {
      const std::span<float> head = std::span(y).subspan(i * kDim, kDim);
      if (c_.norm) {
        const auto normed = reference::rms_norm_exact(head, at(norm).floats(), {.eps = 1e-6f, .weight_offset = 0});
        std::copy(normed.begin(), normed.end(), head.begin());
      }
      if (c_.rope != contract::RopeLayout::kNone)
        reference::rope_exact(head, {.inv_freq = inv_freq_,
                                     .attn_factor = 1.25f,
                                     .interleaved = c_.rope == contract::RopeLayout::kInterleaved,
                                     .position = i / count});
    }
    return y;
  }
  static std::vector<float> column(const std::vector<float>& all, std::uint32_t head) {
    std::vector<float> out;
    for (std::uint32_t p = 0; p < kLength; ++p)
      for (std::uint32_t i = 0; i < kDim; ++i) out.push_back(all[(p * kKvHeads + head) * kDim + i]);
    return out;
  }

  AttentionCase c_;
  HarnessWeight q_, k_, v_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> inv_freq_, x_;
};

const AttentionCase kCases[] = {
    {DType::kF32, DType::kF32, contract::RopeLayout::kInterleaved, false, false},
    {DType::kQ8_0, DType::kF16, contract::RopeLayout::kHalf, true, true},
    {DType::kF16, DType::kF16, contract::RopeLayout::kHalf, false, false},
    {DType::kQ4_0, DType::kF32, contract::RopeLayout::kNone, true, false},
};

TEST(Adapters, AttentionEqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(44);
  for (const AttentionCase& c : kCases) {
    AttentionWorld world(random, c);
    const auto expected = world.expected();
    for (const auto& device : devices())
      for (std::uint32_t chunk : {1u, 7u, 63u})
        ASSERT_TRUE(same_bits(world.run(device, chunk), expected))
            << device.isa << " threads " << device.threads << " chunk " << chunk << " " << random.note();
  }
}

TEST(Adapters, WhatTheyCannotDoIsRefusedAtLoad) {
  Random random(45);
  AttentionWorld world(random, kCases[0]);
  const auto code = [&](auto change) {
    AttentionParams params = world.params();
    auto weights = world.weights();
    change(params, weights);
    const Harness harness(params, weights, {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  using Weights = std::vector<HarnessWeight>;
  const auto slot = [](contract::AttentionSlot s) { return static_cast<std::size_t>(s); };
  using enum contract::AttentionSlot;
  EXPECT_EQ(code([](AttentionParams&, Weights&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.has_sinks = 1; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.causal = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.mrope = contract::MropeKind::kChunked; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.kv_dtype = static_cast<std::uint8_t>(DType::kQ8_0); }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.qk_norm = contract::QkNorm::kPerHead; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(
      code([&](AttentionParams&, Weights& w) { w[slot(kSinks)] = HarnessWeight::random(random, DType::kF32, {6}); }),
      ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([&](AttentionParams&, Weights& w) {
              w[slot(kO)] = HarnessWeight::random(random, DType::kF32, {96, 95});
            }),
            ErrorCode::kWeightShapeMismatch);
  contract::RmsNormParams norm{};
  norm.kind_version = kind_version(Opcode::kRmsNorm), norm.width = 8, norm.kind = contract::NormKind::kLayerNorm;
  EXPECT_EQ(Harness(norm, {HarnessWeight::random(random, DType::kF32, {8})}, {}).error()->code,
            ErrorCode::kUnsupportedOpcode);
  contract::SwigluParams ffn{};
  ffn.kind_version = kind_version(Opcode::kSwiglu), ffn.width = 32, ffn.ffn = 32, ffn.gated = 1,
  ffn.act = contract::Activation::kGeluTanh;
  const auto w = HarnessWeight::random(random, DType::kF32, {32, 32});
  EXPECT_EQ(Harness(ffn, {w, w, w}, {}).error()->code, ErrorCode::kUnsupportedOpcode);
  ffn.act = contract::Activation::kSilu;
  EXPECT_FALSE(Harness(ffn, {w, w, w}, {}).error());
  EXPECT_EQ(Harness(ffn, {{}, w, w}, {}).error()->code, ErrorCode::kUnsupportedOpcode);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters
