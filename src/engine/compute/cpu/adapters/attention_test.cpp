// A whole attention instruction against its scalar reference (bits) and against the formula in double precision.
#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using plan::AttentionParams;
using plan::DType;
using plan::kind_version;
using plan::MropeKind;
using plan::Opcode;
using plan::RopeLayout;
using testing::add_bias;
using testing::devices;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;
using testing::same_bits;
using AttentionRow = std::span<const float>;
using enum plan::AttentionSlot;

struct Case {
  const char* name;
  DType weights = DType::kF32, kv = DType::kF32;
  RopeLayout rope = RopeLayout::kHalf;
  std::uint32_t rotary = 12, d_qk = 16, d_v = 16, window = 0;
  bool norm = false, bias = false, sinks = false, long_rope = false, causal = true;
  MropeKind mrope = MropeKind::kNone;
  float softcap = 0, norm_offset = 0;
  bool unit_values = false;
  bool centered = false;  // `norm` is LayerNorm, with weights for each head
};

constexpr std::uint32_t kWidth = 96, kHeads = 6, kKvHeads = 2, kLength = 79;
constexpr float kScale = 0.25f, kNormEps = 1e-6f;
constexpr std::uint32_t kSections[] = {4, 2, 2};
// Where the spans of a step without a past begin and end.
constexpr std::uint32_t kSpans[] = {0, 1, 33, kLength};

// The sequence's places on its three axes; the first is the position itself.
std::uint32_t place(std::uint32_t position, std::size_t axis) {
  return axis == 0 ? position : axis == 1 ? (7 * position + 3) % 61 : (5 * position + 11) % 47;
}

class World {
 public:
  World(Random& random, const Case& c) : c_(c), weights_(static_cast<std::size_t>(kCount)) {
    const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
      return HarnessWeight::random(random, c.weights, {n, k});
    };
    const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
    at(kQ) = matrix(kHeads * c.d_qk, kWidth), at(kK) = matrix(kKvHeads * c.d_qk, kWidth);
    at(kV) = matrix(kKvHeads * c.d_v, kWidth), at(kO) = matrix(kWidth, kHeads * c.d_v);
    const std::uint32_t q_norms = c.centered ? kHeads : 1, k_norms = c.centered ? kKvHeads : 1;
    if (c.norm) at(kQNorm) = vector(q_norms * c.d_qk), at(kKNorm) = vector(k_norms * c.d_qk);
    if (c.bias)
      at(kQBias) = vector(kHeads * c.d_qk), at(kKBias) = vector(kKvHeads * c.d_qk),
      at(kVBias) = vector(kKvHeads * c.d_v), at(kOBias) = vector(kWidth);
    if (c.sinks) at(kSinks) = vector(kHeads);
    for (std::size_t t = 0; t < 2; ++t)
      for (std::uint32_t i = 0; i < c.rotary / 2; ++i)
        inv_freq_[t].push_back(std::pow(t == 0 ? 100.0f : 900.0f, -static_cast<float>(i) / 6));
    x_ = random.normals(kLength * kWidth);
  }

  AttentionParams params() const {
    AttentionParams p{};
    p.kind_version = kind_version(Opcode::kMultiheadAttention);
    p.width = kWidth, p.heads = kHeads, p.kv_heads = kKvHeads, p.d_qk = c_.d_qk, p.d_v = c_.d_v, p.window = c_.window;
    p.scale = kScale, p.logit_softcap = c_.softcap, p.has_sinks = c_.sinks;
    p.rope_layout = c_.rope, p.causal = c_.causal, p.kv_dtype = static_cast<std::uint8_t>(c_.kv);
    p.kv_page_offset_bytes = 64, p.rotary_dims = c_.rope == RopeLayout::kNone ? 0 : c_.rotary, p.rope_table_id = 0;
    p.rope_table_long_id = c_.long_rope ? 1 : plan::kNoRopeTable, p.mrope = c_.mrope;
    std::copy(std::begin(kSections), std::end(kSections), p.sections);
    p.has_qkv_bias = p.has_o_bias = c_.bias;
    p.qk_norm = !c_.norm ? plan::QkNorm::kNone : c_.centered ? plan::QkNorm::kCenteredPerHead : plan::QkNorm::kPerHead;
    p.qk_norm_eps = kNormEps, p.qk_norm_offset = c_.norm_offset, p.unit_values = c_.unit_values;
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }
  const Case& which() const { return c_; }

  // The sequence on slot 1, `chunk` rows a step, each step after the single row of a second sequence on slot 0, which
  // turns by the short table. Pages that no row of a step sees are absent.
  // `shares`: what comes of it is of a second instruction, which has the first one's cache and no keys or values of its own.
  std::vector<float> run(const HarnessOptions& device, std::uint32_t chunk, bool shares = false) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    AttentionParams reading = params();
    auto without = weights_;
    reading.shares_cache = 1, reading.unit_values = 0;
    for (const plan::AttentionSlot slot : {kK, kV, kKNorm, kKBias, kVBias})
      without[static_cast<std::size_t>(slot)] = {};
    Harness sharing(reading, without, device);
    EXPECT_FALSE(sharing.error()) << sharing.error()->message;
    const plan::KvLayout layout{.dtype = c_.kv, .kv_heads = kKvHeads, .d_qk = c_.d_qk, .d_v = c_.d_v};
    std::vector<std::vector<std::byte>> pages(4, std::vector<std::byte>(64 + layout.page_bytes(), std::byte{0xFF}));
    const std::uint8_t long_rope[] = {0, 1};
    std::vector<float> out;
    std::uint32_t other = 0;  // position of the second sequence
    for (std::uint32_t at = 0; at < kLength; at += chunk, ++other) {
      const std::uint32_t n = std::min(chunk, kLength - at);
      std::vector<float> x(x_.rbegin(), x_.rbegin() + kWidth), y((n + 1) * kWidth);
      x.insert(x.end(), x_.begin() + at * kWidth, x_.begin() + (at + n) * kWidth);
      std::vector<std::uint32_t> positions{other}, slots{0};
      for (std::uint32_t i = 0; i < n; ++i) positions.push_back(at + i), slots.push_back(1);
      const auto places = places_of(positions);
      plan::ExecutionContext ctx;
      ctx.total_rows = n + 1, ctx.positions = positions.data(), ctx.slot_of_row = slots.data();
      if (c_.mrope != MropeKind::kNone) ctx.positions3 = places.data();
      if (c_.long_rope) ctx.long_rope_of_slot = long_rope;
      std::vector<std::byte*> table;
      for (std::size_t i : {2, 0, 3, 1}) table.push_back(pages[i].data());
      if (c_.window != 0 && at + 1 >= c_.window + plan::kPageTokens) table[2] = nullptr;
      harness.set_state({.pages = table.data(), .pages_stride = 2});
      const auto tables = rope_tables();
      ctx.rope_tables = tables;
      harness.run(ctx, {x.data()}, y.data());
      if (shares) {
        sharing.set_state({.pages = table.data(), .pages_stride = 2});
        sharing.run(ctx, {x.data()}, y.data());
      }
      out.insert(out.end(), y.begin() + kWidth, y.end());
    }
    return out;
  }

  // Without a past: spans [first, last) of kSpans in one step.
  std::vector<float> run_spans(const HarnessOptions& device, std::size_t first, std::size_t last) {
    HarnessOptions options = device;
    options.limits.rows_max = kLength;
    Harness harness(params(), weights_, options);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const std::uint32_t begin = kSpans[first], rows = kSpans[last] - begin;
    std::vector<std::uint32_t> offsets, positions;
    for (std::size_t s = first; s <= last; ++s) offsets.push_back(kSpans[s] - begin);
    for (std::uint32_t r = 0; r < rows; ++r) positions.push_back(begin + r);
    const auto places = places_of(positions);
    const auto tables = rope_tables();
    plan::ExecutionContext ctx;
    ctx.total_rows = rows, ctx.row_offsets = offsets, ctx.rope_tables = tables, ctx.positions3 = places.data();
    ctx.positions = positions.data();
    std::vector<float> y(rows * kWidth);
    harness.run(ctx, {x_.data() + begin * kWidth}, y.data());
    return y;
  }

  std::vector<float> expected() {
    auto q = heads(kQ, kQBias, kQNorm, kHeads), k = heads(kK, kKBias, kKNorm, kKvHeads);
    auto v = matmul_rows(at(kV), x_);
    if (c_.bias) add_bias(v, at(kVBias).floats());
    const std::vector<float> ones(c_.d_v, 1.0f);
    for (std::size_t i = 0; c_.unit_values && i < v.size(); i += c_.d_v) {
      const std::span<float> head = std::span(v).subspan(i, c_.d_v);
      std::ranges::copy(reference::rms_norm_exact(head, ones, {.eps = kNormEps, .weight_offset = 0}), head.begin());
    }
    if (c_.kv == DType::kF16)
      for (auto* cached : {&k, &v})
        for (float& value : *cached) value = half_to_float(float_to_half(value));
    std::vector<float> attended(kLength * kHeads * c_.d_v);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const auto keys = column(k, h / (kHeads / kKvHeads), c_.d_qk),
                 values = column(v, h / (kHeads / kKvHeads), c_.d_v);
      for (std::uint32_t p = 0; p < kLength; ++p) {
        const auto [begin, end] = sight(p);
        reference::AttentionOptions options{
            .position = end - begin - 1, .window = c_.causal ? c_.window : 0, .scale = kScale, .softcap = c_.softcap};
        if (c_.sinks) options.sink = at(kSinks).floats()[h];
        const auto o =
            reference::attention_exact(AttentionRow(q).subspan((p * kHeads + h) * c_.d_qk, c_.d_qk),
                                       AttentionRow(keys).subspan(begin * c_.d_qk, (end - begin) * c_.d_qk),
                                       AttentionRow(values).subspan(begin * c_.d_v, (end - begin) * c_.d_v), options);
        std::copy(o.begin(), o.end(), attended.begin() + static_cast<std::ptrdiff_t>((p * kHeads + h) * c_.d_v));
      }
    }
    auto y = matmul_rows(at(kO), attended);
    if (c_.bias) add_bias(y, at(kOBias).floats());
    return y;
  }

  // The formula, for F32 weights and cache.
  std::vector<double> oracle() {
    const auto q = oracle_heads(kQ, kQBias, kQNorm, kHeads), k = oracle_heads(kK, kKBias, kKNorm, kKvHeads),
               v = oracle_values();
    std::vector<double> attended(kLength * kHeads * c_.d_v);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const std::uint32_t kv = h / (kHeads / kKvHeads);
      for (std::uint32_t p = 0; p < kLength; ++p) {
        auto [begin, end] = sight(p);
        if (c_.causal && c_.window != 0 && end > c_.window) begin = std::max(begin, end - c_.window);
        std::vector<double> share(end);
        double total = c_.sinks ? std::exp(static_cast<double>(at(kSinks).floats()[h])) : 0;
        for (std::uint32_t j = begin; j < end; ++j) {
          double s = 0;
          for (std::uint32_t i = 0; i < c_.d_qk; ++i)
            s += q[(p * kHeads + h) * c_.d_qk + i] * k[(j * kKvHeads + kv) * c_.d_qk + i];
          s *= kScale;
          if (c_.softcap > 0) s = c_.softcap * std::tanh(s / c_.softcap);
          total += share[j] = std::exp(s);
        }
        for (std::uint32_t j = begin; j < end; ++j)
          for (std::uint32_t i = 0; i < c_.d_v; ++i)
            attended[(p * kHeads + h) * c_.d_v + i] += share[j] / total * v[(j * kKvHeads + kv) * c_.d_v + i];
      }
    }
    return oracle_matmul(kO, kOBias, attended);
  }

 private:
  HarnessWeight& at(plan::AttentionSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }

  std::vector<plan::RopeTable> rope_tables() const {
    return {{inv_freq_[0].data(), c_.rotary / 2, 1.25f}, {inv_freq_[1].data(), c_.rotary / 2, 0.75f}};
  }
  std::vector<std::uint32_t> places_of(const std::vector<std::uint32_t>& positions) const {
    std::vector<std::uint32_t> places;
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (std::uint32_t position : positions) places.push_back(place(position, axis));
    return places;
  }
  // Positions a row may see; of a cache before the window.
  std::pair<std::uint32_t, std::uint32_t> sight(std::uint32_t p) const {
    if (c_.causal) return {0, p + 1};
    std::size_t span = 0;
    while (kSpans[span + 1] <= p) ++span;
    const std::uint32_t begin = kSpans[span], end = kSpans[span + 1];
    if (c_.window == 0) return {begin, end};
    return {p - begin >= c_.window ? p - c_.window + 1 : begin, std::min(end, p + c_.window)};
  }
  // The axis of every pair, as the models' papers tell it: strides overwritten, not a formula per pair.
  std::vector<std::size_t> axes() const {
    const std::uint32_t pairs = c_.rotary / 2;
    std::vector<std::size_t> axis(pairs, 0);
    if (c_.rope == RopeLayout::kVision2d)
      for (std::uint32_t i = 0; i < pairs; ++i) axis[i] = i < pairs / 2 ? 1 : 2;
    if (c_.mrope == MropeKind::kInterleaved)
      for (std::uint32_t a : {1u, 2u})
        for (std::uint32_t i = a; i < 3 * kSections[a]; i += 3) axis[i] = a;
    if (c_.mrope == MropeKind::kChunked)
      for (std::uint32_t i = kSections[0]; i < pairs; ++i) axis[i] = i < kSections[0] + kSections[1] ? 1 : 2;
    return axis;
  }

  std::vector<float> norm_of(plan::AttentionSlot norm, std::uint32_t head) {
    const auto all = at(norm).floats();
    const auto begin = all.begin() + (c_.centered ? head * c_.d_qk : 0);
    return {begin, begin + c_.d_qk};
  }
  // Projected, biased, normed and rotated: [positions, heads, d_qk].
  std::vector<float> heads(plan::AttentionSlot w, plan::AttentionSlot bias, plan::AttentionSlot norm,
                           std::uint32_t count) {
    auto y = matmul_rows(at(w), x_);
    if (c_.bias) add_bias(y, at(bias).floats());
    const auto axis = axes();
    for (std::uint32_t i = 0; i < kLength * count; ++i) {
      const std::span<float> head = std::span(y).subspan(i * c_.d_qk, c_.d_qk);
      if (c_.norm) {
        const auto weight = norm_of(norm, i % count);
        const auto normed =
            c_.centered ? reference::layer_norm_exact(head, weight, {}, kNormEps)
                        : reference::rms_norm_exact(head, weight, {.eps = kNormEps, .weight_offset = c_.norm_offset});
        std::copy(normed.begin(), normed.end(), head.begin());
      }
      if (c_.rope == RopeLayout::kNone) continue;
      std::vector<std::uint32_t> places;
      for (std::size_t a : axis) places.push_back(place(i / count, a));
      reference::rope_exact(head, {.inv_freq = inv_freq_[c_.long_rope ? 1 : 0],
                                   .attn_factor = c_.long_rope ? 0.75f : 1.25f,
                                   .interleaved = c_.rope == RopeLayout::kInterleaved,
                                   .position_of_pair = places});
    }
    return y;
  }
  static std::vector<float> column(const std::vector<float>& all, std::uint32_t head, std::uint32_t dims) {
    std::vector<float> out;
    for (std::uint32_t p = 0; p < kLength; ++p)
      for (std::uint32_t i = 0; i < dims; ++i) out.push_back(all[(p * kKvHeads + head) * dims + i]);
    return out;
  }

  std::vector<double> oracle_values() {
    auto v = oracle_matmul(kV, kVBias, {x_.begin(), x_.end()});
    for (std::size_t i = 0; c_.unit_values && i < v.size(); i += c_.d_v) {
      double squares = 0;
      for (std::size_t n = i; n < i + c_.d_v; ++n) squares += v[n] * v[n];
      for (std::size_t n = i; n < i + c_.d_v; ++n) v[n] /= std::sqrt(squares / c_.d_v + static_cast<double>(kNormEps));
    }
    return v;
  }
  std::vector<double> oracle_matmul(plan::AttentionSlot w, plan::AttentionSlot bias, const std::vector<double>& x) {
    const auto weight = at(w).floats();
    const std::size_t cols = at(w).shape[1], rows = at(w).shape[0];
    std::vector<double> y(x.size() / cols * rows);
    for (std::size_t i = 0; i < y.size(); ++i) {
      for (std::size_t k = 0; k < cols; ++k) y[i] += x[i / rows * cols + k] * weight[i % rows * cols + k];
      if (c_.bias) y[i] += at(bias).floats()[i % rows];
    }
    return y;
  }
  std::vector<double> oracle_heads(plan::AttentionSlot w, plan::AttentionSlot bias, plan::AttentionSlot norm,
                                   std::uint32_t count) {
    auto y = oracle_matmul(w, bias, {x_.begin(), x_.end()});
    const auto axis = axes();
    for (std::uint32_t row = 0; row < kLength * count; ++row) {
      double* head = y.data() + row * c_.d_qk;
      if (c_.norm) {
        const auto weight = norm_of(norm, row % count);
        double mean = 0, squares = 0;
        for (std::uint32_t i = 0; c_.centered && i < c_.d_qk; ++i) mean += head[i] / c_.d_qk;
        for (std::uint32_t i = 0; i < c_.d_qk; ++i) squares += (head[i] - mean) * (head[i] - mean);
        for (std::uint32_t i = 0; i < c_.d_qk; ++i)
          head[i] = (head[i] - mean) * (weight[i] + c_.norm_offset) / std::sqrt(squares / c_.d_qk + kNormEps);
      }
      for (std::uint32_t i = 0; c_.rope != RopeLayout::kNone && i < c_.rotary / 2; ++i) {
        const double angle = place(row / count, axis[i]) * static_cast<double>(inv_freq_[c_.long_rope ? 1 : 0][i]);
        const double factor = c_.long_rope ? 0.75 : 1.25, c = std::cos(angle) * factor, s = std::sin(angle) * factor;
        double& a = head[c_.rope == RopeLayout::kInterleaved ? 2 * i : i];
        double& b = head[c_.rope == RopeLayout::kInterleaved ? 2 * i + 1 : i + c_.rotary / 2];
        const double a0 = a, b0 = b;
        a = a0 * c - b0 * s, b = b0 * c + a0 * s;
      }
    }
    return y;
  }

  Case c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> inv_freq_[2], x_;
};

const Case kCases[] = {
    {.name = "plain", .rope = RopeLayout::kInterleaved, .window = 40},
    {.name = "norm, bias, window",
     .weights = DType::kQ8_0,
     .kv = DType::kF16,
     .window = 40,
     .norm = true,
     .bias = true},
    {.name = "f16", .weights = DType::kF16, .kv = DType::kF16},
    {.name = "no rotation", .weights = DType::kQ4_0, .rope = RopeLayout::kNone, .norm = true},
    {.name = "sinks and window", .window = 9, .bias = true, .sinks = true},
    {.name = "sinks, f16", .weights = DType::kQ8_0, .kv = DType::kF16, .rotary = 16, .sinks = true},
    {.name = "soft cap", .window = 40, .softcap = 2.5f},
    {.name = "norm with offset", .norm = true, .norm_offset = 1},
    {.name = "long table", .rope = RopeLayout::kInterleaved, .long_rope = true},
    {.name = "long table, f16", .weights = DType::kF16, .kv = DType::kF16, .window = 20, .long_rope = true},
    {.name = "interleaved sections", .rotary = 16, .norm = true, .mrope = MropeKind::kInterleaved},
    {.name = "chunked sections", .rope = RopeLayout::kInterleaved, .rotary = 16, .mrope = MropeKind::kChunked},
    {.name = "odd head, other values", .rotary = 6, .d_qk = 19, .d_v = 13},
    {.name = "unit values", .norm = true, .bias = true, .unit_values = true},
    {.name = "centered heads", .window = 40, .norm = true, .bias = true, .centered = true},
    {.name = "centered heads, odd", .weights = DType::kQ8_0, .rotary = 6, .d_qk = 19, .norm = true, .centered = true},
    {.name = "unit values, f16, odd", .kv = DType::kF16, .rotary = 6, .d_qk = 19, .d_v = 13, .unit_values = true},
    {.name = "odd head, f16", .weights = DType::kF16, .kv = DType::kF16, .rotary = 2, .d_qk = 7, .d_v = 33},
};
const Case kSpanCases[] = {
    {.name = "image", .rope = RopeLayout::kVision2d, .rotary = 16, .bias = true, .causal = false},
    {.name = "image, part of an odd head",
     .weights = DType::kF16,
     .rope = RopeLayout::kVision2d,
     .rotary = 12,
     .d_qk = 19,
     .d_v = 13,
     .causal = false},
    {.name = "no rotation, sinks, cap",
     .rope = RopeLayout::kNone,
     .norm = true,
     .sinks = true,
     .causal = false,
     .softcap = 5},
    {.name = "windows on both sides", .window = 9, .norm = true, .causal = false},
    {.name = "windows wider than most spans", .rope = RopeLayout::kInterleaved, .window = 40, .causal = false},
    {.name = "a window of the row itself", .window = 1, .causal = false},
};

TEST(AttentionAdapter, EqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(44);
  for (const Case& c : kCases) {
    World world(random, c);
    const auto expected = world.expected();
    for (const auto& device : devices())
      for (std::uint32_t chunk : {1u, 7u, 63u})
        ASSERT_TRUE(same_bits(world.run(device, chunk), expected))
            << c.name << ": " << device.isa << " threads " << device.threads << " chunk " << chunk << " "
            << random.note();
  }
}

// The queries are the same, so what they read is as well.
TEST(AttentionAdapter, ReadsWhatAnotherInstructionHasCached) {
  Random random(49);
  for (const Case& c : kCases) {
    World world(random, c);
    const auto expected = world.expected();
    for (const auto& device : devices())
      for (std::uint32_t chunk : {1u, 63u})
        ASSERT_TRUE(same_bits(world.run(device, chunk, true), expected)) << c.name << " " << device.isa << " " << chunk;
  }
}

TEST(AttentionAdapter, SpansEqualTheirTwinTogetherAndAlone) {
  Random random(48);
  for (const Case& c : kSpanCases) {
    World world(random, c);
    const auto expected = world.expected();
    for (const auto& device : devices()) {
      SCOPED_TRACE(::testing::Message() << c.name << ": " << device.isa << " threads " << device.threads << " "
                                        << random.note());
      ASSERT_TRUE(same_bits(world.run_spans(device, 0, 3), expected));
      for (std::size_t s = 0; s < 3; ++s)
        ASSERT_TRUE(
            same_bits(world.run_spans(device, s, s + 1),
                      AttentionRow(expected).subspan(kSpans[s] * kWidth, (kSpans[s + 1] - kSpans[s]) * kWidth)));
    }
  }
}

TEST(AttentionAdapter, IsCloseToTheFormula) {
  Random random(49);
  SCOPED_TRACE(random.note());
  for (const auto& cases : {std::span<const Case>(kCases), std::span<const Case>(kSpanCases)})
    for (Case c : cases) {
      c.weights = c.kv = DType::kF32;
      World world(random, c);
      const auto exact = world.oracle();
      const auto y = c.causal ? world.run(devices().back(), 63) : world.run_spans(devices().back(), 0, 3);
      double largest = 0;
      for (double v : exact) largest = std::max(largest, std::fabs(v));
      // Queries and keys carry 96 roundings and rotations of 2^-23, so scores (below 40 here) are within 40 * 112 *
      // 2^-24 < 3e-4 of the exact ones; that is the relative error of a share, and shares average values below
      // `largest`.
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], exact[i], 3e-4 * largest) << c.name << " at " << i;
    }
}

// What a row without its own three positions means: it stands at the same place on every axis.
TEST(AttentionAdapter, SectionsWithoutPlacesTurnByThePosition) {
  Random random(50);
  Case c{.name = "", .rotary = 16};
  World plain(random, c);
  const auto run = [&](MropeKind mrope) {
    AttentionParams params = plain.params();
    params.mrope = mrope;
    Harness harness(params, plain.weights(), {});
    const plan::KvLayout layout{.dtype = c.kv, .kv_heads = kKvHeads, .d_qk = c.d_qk, .d_v = c.d_v};
    std::vector<std::byte> page(64 + layout.page_bytes());
    std::byte* pages[] = {page.data()};
    const std::uint32_t positions[] = {0, 1, 2}, slots[] = {0, 0, 0};
    const std::vector<float> inv_freq(8, 0.5f);
    const plan::RopeTable table{inv_freq.data(), 8, 1.0f};
    plan::ExecutionContext ctx;
    ctx.total_rows = 3, ctx.positions = positions, ctx.slot_of_row = slots;
    harness.set_state({.pages = pages, .pages_stride = 1});
    ctx.rope_tables = {&table, 1};
    std::vector<float> x(3 * kWidth), y(3 * kWidth);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) - 5;
    harness.run(ctx, {x.data()}, y.data());
    return y;
  };
  EXPECT_TRUE(same_bits(run(MropeKind::kInterleaved), run(MropeKind::kNone)));
}

TEST(AttentionAdapter, WhatItCannotDoIsRefusedAtLoad) {
  Random random(45);
  Case c{.name = "", .rotary = 16};
  World world(random, c);
  const auto code = [&](auto change) {
    AttentionParams params = world.params();
    auto weights = world.weights();
    change(params, weights);
    const Harness harness(params, weights, {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  using Weights = std::vector<HarnessWeight>;
  const auto slot = [](plan::AttentionSlot s) { return static_cast<std::size_t>(s); };
  EXPECT_EQ(code([](AttentionParams&, Weights&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.has_sinks = 1; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([&](AttentionParams&, Weights& w) {
              w[slot(kSinks)] = HarnessWeight::random(random, DType::kF32, {kHeads});
            }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.causal = 0, p.window = 8; }), ErrorCode::kInternal);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.causal = 0, p.window = 8, p.chunked = 1; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.causal = 0; }), ErrorCode::kInternal);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.mrope = MropeKind::kChunked; }), ErrorCode::kInternal);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.mrope = MropeKind::kChunked, p.sections[2] = 3; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(
      code([](AttentionParams& p, Weights&) { p.mrope = MropeKind::kChunked, p.rope_layout = RopeLayout::kNone; }),
      ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.rope_layout = RopeLayout::kVision2d, p.rotary_dims = 6; }),
            ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.rotary_dims = 18; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](AttentionParams& p, Weights&) { p.kv_dtype = static_cast<std::uint8_t>(DType::kQ8_0); }),
            ErrorCode::kUnsupportedOpcode);
  for (const plan::QkNorm norm : {plan::QkNorm::kPerHead, plan::QkNorm::kCenteredPerHead})
    EXPECT_EQ(code([=](AttentionParams& p, Weights&) { p.qk_norm = norm; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([&](AttentionParams&, Weights& w) {
              w[slot(kO)] = HarnessWeight::random(random, DType::kF32, {kWidth, 95});
            }),
            ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters
