// Compressors and the attention that reads what they leave.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/layouts.h"
#include "engine/compute/reference/compressed.h"

namespace llorch::engine::compute::cpu::adapters::compressed {
namespace {

using plan::CompressedAttentionParams;
using plan::CompressedAttentionSlot;
using plan::CompressorParams;
using plan::CompressorSlot;
using plan::DType;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;
using testing::same_bits;

constexpr std::uint32_t kWidth = 64, kLength = 150, kRope = 8;
constexpr float kEps = 1e-5f, kFactor = 1.25f;

std::vector<float> frequencies() {
  std::vector<float> f;
  for (std::size_t i = 0; i < kRope / 2; ++i) f.push_back(std::pow(100.0f, -static_cast<float>(i) / 3));
  return f;
}
// The last kRope elements of a head.
void turn(std::span<float> head, std::uint32_t position, bool back = false) {
  const auto f = frequencies();
  std::vector<float> tail(head.end() - kRope, head.end());
  if (back)  // by the negative angle: the sines change sign, as if the elements of a pair had changed places
    for (std::size_t i = 0; i < kRope; i += 2) std::swap(tail[i], tail[i + 1]);
  reference::rope_exact(tail, {.inv_freq = f, .attn_factor = kFactor, .interleaved = true, .position = position});
  if (back)
    for (std::size_t i = 0; i < kRope; i += 2) std::swap(tail[i], tail[i + 1]);
  std::ranges::copy(tail, head.end() - kRope);
}
void norm(std::span<float> x, const std::vector<float>& weight) {
  std::ranges::copy(reference::rms_norm_exact(x, weight, {.eps = kEps}), x.begin());
}

// A step: rows of the sequence on slot 1 behind a row of another one on slot 0.
struct Step {
  std::vector<std::uint32_t> positions, slots, offsets, active{0, 1};
  plan::ExecutionContext ctx;
  plan::RopeTable rope;
  std::vector<float> inv_freq = frequencies();
  Step(std::uint32_t other, std::uint32_t first, std::uint32_t count)
      : positions{other}, slots{0}, offsets{0, 1, count + 1} {
    for (std::uint32_t i = 0; i < count; ++i) positions.push_back(first + i), slots.push_back(1);
    rope = {inv_freq.data(), kRope / 2, kFactor};
    ctx.batch_size = 2, ctx.total_rows = count + 1, ctx.active_slots = active, ctx.row_offsets = offsets;
    ctx.positions = positions.data(), ctx.slot_of_row = slots.data(), ctx.rope_tables = {&rope, 1};
  }
  Step(const Step&) = delete;
};

struct CompressorCase {
  DType weights;
  std::uint32_t d_head, d_index, rate;
  bool overlaps;
};
const CompressorCase kCompressorCases[] = {{DType::kF32, 40, 24, 4, true},
                                           {DType::kF32, 33, 0, 128, false},
                                           {DType::kQ8_0, 32, 8, 3, true},
                                           {DType::kF32, 16, 0, 1, false}};

class CompressorWorld {
 public:
  CompressorWorld(Random& random, const CompressorCase& c)
      : c_(c), weights_(static_cast<std::size_t>(CompressorSlot::kCount)) {
    using enum CompressorSlot;
    fill(random, kKv, c.d_head);
    if (c.d_index != 0) fill(random, kIndexKv, c.d_index);
    x_ = random.normals(kLength * kWidth);
  }
  CompressorParams params() const {
    CompressorParams p{};
    p.kind_version = plan::kind_version(CompressorParams::kOpcode);
    p.width = kWidth, p.d_head = c_.d_head, p.d_index = c_.d_index, p.d_rope = kRope, p.rate = c_.rate,
    p.norm_eps = kEps;
    p.rope_layout = plan::RopeLayout::kInterleaved, p.overlaps = c_.overlaps, p.state_offset_bytes = 64;
    return p;
  }
  std::uint32_t row() const { return c_.d_head + c_.d_index; }
  std::vector<HarnessWeight>& weights() { return weights_; }

  // The entries of the sequence on slot 1.
  std::vector<float> run(const HarnessOptions& device, std::uint32_t chunk) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const std::size_t slot = 64 + compressor_state_layout(params()).bytes();
    std::vector<std::byte> state(2 * slot);
    harness.set_state({.ptr = state.data(), .size = slot});
    std::vector<float> out;
    std::uint32_t other = 0;
    for (std::uint32_t at = 0; at < kLength; at += chunk, ++other) {
      Step step(other, at, std::min(chunk, kLength - at));
      const std::uint32_t n = step.ctx.total_rows - 1;
      std::vector<float> x(x_.rbegin(), x_.rbegin() + kWidth), y(step.ctx.total_rows * row());
      x.insert(x.end(), x_.begin() + at * kWidth, x_.begin() + (at + n) * kWidth);
      harness.run(step.ctx, {x.data()}, y.data());
      for (std::uint32_t i = 0; i < n; ++i)
        if ((at + i + 1) % c_.rate == 0)
          out.insert(out.end(), y.begin() + (i + 1) * row(), y.begin() + (i + 2) * row());
    }
    return out;
  }
  std::vector<float> expected() {
    const auto heads = entries(CompressorSlot::kKv, c_.d_head), index = entries(CompressorSlot::kIndexKv, c_.d_index);
    std::vector<float> out;
    for (std::size_t e = 0; e < kLength / c_.rate; ++e) {
      out.insert(out.end(), heads.begin() + e * c_.d_head, heads.begin() + (e + 1) * c_.d_head);
      out.insert(out.end(), index.begin() + e * c_.d_index, index.begin() + (e + 1) * c_.d_index);
    }
    return out;
  }

 private:
  HarnessWeight& at(CompressorSlot slot, std::size_t further = 0) {
    return weights_[static_cast<std::size_t>(slot) + further];
  }
  // kv, gate, bias and norm follow each other.
  void fill(Random& random, CompressorSlot first, std::uint32_t dim) {
    const std::uint32_t columns = dim * (c_.overlaps ? 2 : 1);
    at(first) = HarnessWeight::random(random, c_.weights, {columns, kWidth});
    at(first, 1) = HarnessWeight::random(random, c_.weights, {columns, kWidth});
    at(first, 2) = HarnessWeight::random(random, DType::kF32, {c_.rate, columns});
    at(first, 3) = HarnessWeight::random(random, DType::kF32, {dim});
  }
  std::vector<float> entries(CompressorSlot first, std::uint32_t dim) {
    if (dim == 0) return {};
    auto y = reference::compress_exact(matmul_rows(at(first), x_), matmul_rows(at(first, 1), x_), at(first, 2).floats(),
                                       {.dim = dim, .rate = c_.rate, .overlaps = c_.overlaps});
    for (std::size_t e = 0; e < y.size() / dim; ++e) {
      norm(std::span(y).subspan(e * dim, dim), at(first, 3).floats());
      turn(std::span(y).subspan(e * dim, dim), static_cast<std::uint32_t>(e * c_.rate));
    }
    return y;
  }
  CompressorCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_;
};

TEST(Compressor, LeavesTheEntriesOfItsTwinWhateverTheChunksAndNeighbours) {
  Random random(94);
  SCOPED_TRACE(random.note());
  for (const CompressorCase& c : kCompressorCases) {
    CompressorWorld world(random, c);
    const auto expected = world.expected();
    ASSERT_EQ(expected.size(), kLength / c.rate * world.row());
    for (const auto& device : testing::devices())
      for (const std::uint32_t chunk : {1U, 7U, 63U})
        ASSERT_TRUE(same_bits(world.run(device, chunk), expected))
            << "rate " << c.rate << " " << device.isa << " threads " << device.threads << " chunk " << chunk;
  }
}

TEST(Compressor, AnEntryIsTheWeighedMeanOfItsWindows) {
  Random random(95);
  SCOPED_TRACE(random.note());
  for (const bool overlaps : {false, true}) {
    const std::size_t dim = 5, rate = 4, columns = dim * (overlaps ? 2 : 1);
    const auto kv = random.normals(22 * columns), bias = random.normals(rate * columns);
    auto gate = random.normals(22 * columns);
    for (float& g : gate) g *= 20;  // one row nearly alone, and then another
    const reference::CompressOptions options{.dim = dim, .rate = rate, .overlaps = overlaps};
    const auto y = reference::compress_exact(kv, gate, bias, options);
    const auto exact = reference::compress_reference(std::vector<double>(kv.begin(), kv.end()),
                                                     std::vector<double>(gate.begin(), gate.end()), bias, options);
    ASSERT_EQ(y.size(), 5 * dim);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], exact[i], 2e-5);  // logits up to 80: 80 * 2^-24 in e^x
  }
}

struct AttentionCase {
  DType weights, kv;
  std::uint32_t heads, groups, d_head, window, rate, index_heads, d_index, top_k;
};
const AttentionCase kAttentionCases[] = {{DType::kF32, DType::kF32, 6, 3, 20, 16, 0, 0, 0, 0},
                                         {DType::kF32, DType::kF16, 4, 2, 33, 200, 128, 0, 0, 0},
                                         {DType::kF32, DType::kF32, 5, 1, 24, 9, 4, 3, 12, 7},
                                         {DType::kQ8_0, DType::kF16, 8, 2, 32, 16, 3, 4, 16, 64},
                                         {DType::kF32, DType::kF16, 2, 2, 16, 1, 1, 2, 8, 3}};

class AttentionWorld {
 public:
  static constexpr std::uint32_t kQLora = 32, kRank = 32;
  static constexpr float kScale = 0.21f, kIndexScale = 0.3f;

  AttentionWorld(Random& random, const AttentionCase& c)
      : c_(c), weights_(static_cast<std::size_t>(CompressedAttentionSlot::kCount)) {
    using enum CompressedAttentionSlot;
    const auto matrix = [&](std::vector<std::uint32_t> shape) {
      return HarnessWeight::random(random, c.weights, std::move(shape));
    };
    const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
    at(kQA) = matrix({kQLora, kWidth}), at(kQANorm) = vector(kQLora), at(kQB) = matrix({c.heads * c.d_head, kQLora});
    at(kKv) = matrix({c.d_head, kWidth}), at(kKvNorm) = vector(c.d_head), at(kSinks) = vector(c.heads);
    at(kOA) = matrix({c.groups, kRank, c.heads * c.d_head / c.groups}), at(kOB) = matrix({kWidth, c.groups * kRank});
    if (c.top_k != 0)
      at(kIndexQ) = matrix({c.index_heads * c.d_index, kQLora}), at(kIndexWeights) = matrix({c.index_heads, kWidth});
    x_ = random.normals(kLength * kWidth);
    entries_ = random.normals(kLength * row());
  }
  CompressedAttentionParams params() const {
    CompressedAttentionParams p{};
    p.kind_version = plan::kind_version(CompressedAttentionParams::kOpcode);
    p.width = kWidth, p.heads = c_.heads, p.q_lora = kQLora, p.d_head = c_.d_head, p.d_rope = kRope,
    p.groups = c_.groups;
    p.o_rank = kRank, p.window = c_.window, p.rate = c_.rate, p.index_heads = c_.index_heads, p.d_index = c_.d_index;
    p.top_k = c_.top_k, p.scale = kScale, p.index_scale = kIndexScale, p.norm_eps = kEps;
    p.rope_layout = plan::RopeLayout::kInterleaved, p.kv_dtype = static_cast<std::uint8_t>(c_.kv),
    p.kv_page_offset_bytes = 128;
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  std::vector<float> run(const HarnessOptions& device, std::uint32_t chunk) {
    Harness harness(params(), weights_, device, c_.rate != 0 ? 1 : 0);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const std::size_t page = 128 + compressed_kv_layout(params()).page_bytes();
    std::vector<std::vector<std::byte>> pages(6, std::vector<std::byte>(page, std::byte{0xFF}));
    std::vector<std::byte*> table;
    for (const std::size_t i : {2, 0, 5, 3, 1, 4}) table.push_back(pages[i].data());
    harness.set_state({.pages = table.data(), .pages_stride = 3});
    std::vector<float> out;
    std::uint32_t other = 0;
    for (std::uint32_t from = 0; from < kLength; from += chunk, ++other) {
      Step step(other, from, std::min(chunk, kLength - from));
      const std::uint32_t n = step.ctx.total_rows - 1;
      const auto rows = [&](const std::vector<float>& all, std::size_t width) {
        std::vector<float> some(all.end() - static_cast<std::ptrdiff_t>(width), all.end());
        some.insert(some.end(), all.begin() + from * width, all.begin() + (from + n) * width);
        return some;
      };
      const auto x = rows(x_, kWidth), entries = rows(entries_, row());
      std::vector<float> y(step.ctx.total_rows * kWidth);
      std::vector<const float*> inputs{x.data()};
      if (c_.rate != 0) inputs.push_back(entries.data());
      harness.run(step.ctx, inputs, y.data());
      out.insert(out.end(), y.begin() + kWidth, y.end());
    }
    return out;
  }

  std::vector<float> expected() {
    using enum CompressedAttentionSlot;
    auto q_a = matmul_rows(at(kQA), x_), kv = matmul_rows(at(kKv), x_);
    for (std::uint32_t p = 0; p < kLength; ++p) {
      norm(std::span(q_a).subspan(p * kQLora, kQLora), at(kQANorm).floats());
      norm(std::span(kv).subspan(p * c_.d_head, c_.d_head), at(kKvNorm).floats());
      turn(std::span(kv).subspan(p * c_.d_head, c_.d_head), p);
    }
    auto q = matmul_rows(at(kQB), q_a);
    for (std::uint32_t i = 0; i < kLength * c_.heads; ++i) {
      norm(std::span(q).subspan(i * c_.d_head, c_.d_head), std::vector<float>(c_.d_head, 1.0f));
      turn(std::span(q).subspan(i * c_.d_head, c_.d_head), i / c_.heads);
    }
    const auto cached_kv = as_cached(kv), cached = as_cached(entries_);
    const auto chosen = choices(q_a, cached);
    std::vector<float> low;
    for (std::uint32_t p = 0; p < kLength; ++p) {
      std::vector<float> keys, attended;
      const std::uint32_t first = p + 1 > c_.window ? p + 1 - c_.window : 0;
      keys.assign(cached_kv.begin() + first * c_.d_head, cached_kv.begin() + (p + 1) * c_.d_head);
      for (const std::uint32_t e : chosen[p]) {
        const auto entry = cached.begin() + entry_at(e);
        keys.insert(keys.end(), entry, entry + c_.d_head);
      }
      for (std::uint32_t h = 0; h < c_.heads; ++h) {
        auto y = reference::attend_keys_exact(std::span(q).subspan((p * c_.heads + h) * c_.d_head, c_.d_head), keys,
                                              {.scale = kScale, .sink = at(kSinks).floats()[h]});
        turn(y, p, true);
        attended.insert(attended.end(), y.begin(), y.end());
      }
      for (std::uint32_t g = 0; g < c_.groups; ++g) {
        const HarnessWeight& o = at(kOA);
        const std::size_t bytes = o.stored.size() / c_.groups, width = c_.heads * c_.d_head / c_.groups;
        const auto part = reference::matmul_exact(o.dtype, std::span(o.stored).subspan(g * bytes, bytes), kRank,
                                                  std::span<const float>(attended).subspan(g * width, width));
        low.insert(low.end(), part.begin(), part.end());
      }
    }
    return matmul_rows(at(kOB), low);
  }

 private:
  HarnessWeight& at(CompressedAttentionSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  std::uint32_t row() const { return c_.d_head + c_.d_index; }
  std::ptrdiff_t entry_at(std::uint32_t e) const {
    return static_cast<std::ptrdiff_t>(((e + 1) * c_.rate - 1) * row());  // in the row that ends its window
  }
  std::vector<float> as_cached(std::vector<float> x) const {
    for (float& v : x) v = c_.kv == DType::kF16 ? half_to_float(float_to_half(v)) : v;
    return x;
  }
  // The entries each row attends to, ascending.
  std::vector<std::vector<std::uint32_t>> choices(const std::vector<float>& q_a, const std::vector<float>& cached) {
    std::vector<std::vector<std::uint32_t>> all(kLength);
    std::vector<float> q, w;
    if (c_.top_k != 0) {
      q = matmul_rows(at(CompressedAttentionSlot::kIndexQ), q_a),
      w = matmul_rows(at(CompressedAttentionSlot::kIndexWeights), x_);
      for (std::uint32_t i = 0; i < kLength * c_.index_heads; ++i)
        turn(std::span(q).subspan(i * c_.d_index, c_.d_index), i / c_.index_heads);
    }
    for (std::uint32_t p = 0; p < kLength && c_.rate != 0; ++p) {
      all[p].resize((p + 1) / c_.rate);
      std::iota(all[p].begin(), all[p].end(), 0U);
      if (c_.top_k == 0 || all[p].size() <= c_.top_k) continue;
      std::vector<float> scores;
      for (const std::uint32_t e : all[p]) {
        float sum = 0;
        for (std::uint32_t h = 0; h < c_.index_heads; ++h) {
          const float dot = reference::lanes_dot_exact(
              std::span(q).subspan((p * c_.index_heads + h) * c_.d_index, c_.d_index),
              std::span<const float>(cached).subspan(static_cast<std::size_t>(entry_at(e)) + c_.d_head, c_.d_index));
          sum = std::fma(w[p * c_.index_heads + h], std::max(dot, 0.0f), sum);
        }
        scores.push_back(sum * kIndexScale);
      }
      std::ranges::stable_sort(all[p], [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
      all[p].resize(c_.top_k);
      std::ranges::sort(all[p]);
    }
    return all;
  }

  AttentionCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_, entries_;
};

TEST(CompressedAttention, EqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(96);
  SCOPED_TRACE(random.note());
  for (const AttentionCase& c : kAttentionCases) {
    AttentionWorld world(random, c);
    const auto expected = world.expected();
    for (const auto& device : testing::devices())
      for (const std::uint32_t chunk : {1U, 7U, 63U})
        ASSERT_TRUE(same_bits(world.run(device, chunk), expected))
            << "rate " << c.rate << " top " << c.top_k << " " << device.isa << " threads " << device.threads
            << " chunk " << chunk;
  }
}

TEST(CompressedAttention, TheTwinIsASoftmaxOverKeysWithASink) {
  Random random(97);
  SCOPED_TRACE(random.note());
  const auto q = random.normals(24), keys = random.normals(50 * 24);
  const auto y = reference::attend_keys_exact(q, keys, {.scale = 0.3f, .sink = 1.5f});
  const auto exact =
      reference::attend_keys_reference(std::vector<double>(q.begin(), q.end()),
                                       std::vector<double>(keys.begin(), keys.end()), {.scale = 0.3f, .sink = 1.5f});
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], exact[i], 5e-6);
}

TEST(CompressedAttention, WhatItCannotDoIsRefusedAtLoad) {
  Random random(98);
  AttentionWorld world(random, kAttentionCases[2]);
  const auto code = [&](auto change) {
    auto params = world.params();
    change(params);
    const Harness harness(params, world.weights(), {}, 1);
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  using P = CompressedAttentionParams;
  EXPECT_EQ(code([](P&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](P& p) { p.window = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](P& p) { p.groups = 2; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](P& p) { p.rate = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](P& p) { p.top_k = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](P& p) { p.d_rope = 26; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](P& p) { p.kv_dtype = static_cast<std::uint8_t>(DType::kBF16); }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](P& p) { p.o_rank = 31; }), ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::compressed
