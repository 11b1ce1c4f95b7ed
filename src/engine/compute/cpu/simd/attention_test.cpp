#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::simd {
namespace {

using testing::isas;
using testing::Random;
using testing::same_bits;

struct Case {
  KvType type;
  std::size_t heads, kv_heads, key_dim, value_dim, positions;
  std::uint32_t window;
  float softcap;
  bool sinks = false;
  bool chunked = false;

  // What a row at a position sees ends with it and has so many positions; 0: all.
  std::uint32_t window_at(std::size_t position) const {
    return chunked ? static_cast<std::uint32_t>(position % window) + 1 : window;
  }
};

// One sequence's keys and values, appended in chunks through scattered pages, and queries at every position.
class Cache {
 public:
  static constexpr std::size_t kSequence = 1, kOffset = 128;

  Cache(const Case& c, Random& random) : c_(c), layout_{c.type, c.kv_heads, c.key_dim, c.value_dim} {
    keys_ = random.normals(c.positions * c.kv_heads * c.key_dim);
    values_ = random.normals(c.positions * c.kv_heads * c.value_dim);
    q_ = random.normals(c.positions * c.heads * c.key_dim);
    sinks_ = random.normals(c.heads);
    sinks_[0] = 40.0f;  // above every score: the largest
    const std::size_t pages = (c.positions + kPagePositions - 1) / kPagePositions;
    const std::size_t bytes = kOffset + layout_.value_offset(c.kv_heads);
    // Stale contents of a page must not matter: 0xFF bytes are NaN in both types.
    storage_.assign(pages, std::vector<std::byte>(bytes, std::byte{0xFF}));
    table_.assign(2 * pages, nullptr);
    for (std::size_t i = 0; i < pages; ++i) table_[kSequence * pages + i] = storage_[(i * 7 + 3) % pages].data();
    if (pages % 7 == 0)
      for (std::size_t i = 0; i < pages; ++i) table_[kSequence * pages + i] = storage_[i].data();
    stride_ = pages;
    sequences_.assign(c.positions, kSequence);
    positions_.resize(c.positions);
    std::iota(positions_.begin(), positions_.end(), 0u);
  }

  KvPages pages(std::size_t row) const {
    return {.pages = table_.data(),
            .pages_stride = stride_,
            .offset_bytes = kOffset,
            .sequence_of_row = sequences_.data() + row,
            .positions = positions_.data() + row};
  }

  // Rows belong in turn to two sequences that have the same pages.
  void alternate() {
    std::copy_n(table_.begin() + static_cast<std::ptrdiff_t>(kSequence * stride_), stride_, table_.begin());
    for (std::size_t i = 0; i < sequences_.size(); ++i) sequences_[i] = i % 2;
  }

  // Appends and attends in chunks, as a scheduler would; [positions, heads * value_dim].
  std::vector<float> run(const Kernels& k, std::size_t chunk) {
    const std::size_t group = c_.heads / c_.kv_heads, scores_stride = stride_ * kPagePositions + 16;
    const std::size_t row_tile = 1 + chunk % kTileQueries;
    std::vector<float> out(c_.positions * c_.heads * c_.value_dim), scores(row_tile * group * scores_stride, NAN);
    std::vector<float> widened(kPagePositions * std::max(c_.key_dim, c_.value_dim), NAN);
    for (std::size_t row = 0; row < c_.positions; row += chunk) {
      const std::size_t n = std::min(chunk, c_.positions - row);
      k.kv_append({.layout = layout_,
                   .pages = pages(row),
                   .keys = keys_.data() + row * c_.kv_heads * c_.key_dim,
                   .values = values_.data() + row * c_.kv_heads * c_.value_dim,
                   .key_stride = c_.kv_heads * c_.key_dim,
                   .value_stride = c_.kv_heads * c_.value_dim},
                  {0, n});
      k.attention({.layout = layout_,
                   .pages = pages(row),
                   .q = q_.data() + row * c_.heads * c_.key_dim,
                   .q_stride = c_.heads * c_.key_dim,
                   .out = out.data() + row * c_.heads * c_.value_dim,
                   .out_stride = c_.heads * c_.value_dim,
                   .heads = c_.heads,
                   .scale = 0.17f,
                   .softcap = c_.softcap,
                   .window = c_.window,
                   .chunked = c_.chunked,
                   .sinks = c_.sinks ? sinks_.data() : nullptr,
                   .rows = n,
                   .row_tile = row_tile,
                   .scores = scores.data(),
                   .scores_stride = scores_stride,
                   .widened = widened.data()},
                  {0, (n + row_tile - 1) / row_tile * c_.kv_heads});
    }
    return out;
  }

  // Every row over its span of what run() has stored.
  std::vector<float> attend_spans(const Kernels& k, const std::vector<std::uint32_t>& begin,
                                  const std::vector<std::uint32_t>& end, std::size_t row_tile) {
    const std::size_t scores_stride = stride_ * kPagePositions + 16;
    std::vector<float> out(c_.positions * c_.heads * c_.value_dim);
    std::vector<float> scores(row_tile * c_.heads / c_.kv_heads * scores_stride, NAN);
    std::vector<float> widened(kPagePositions * std::max(c_.key_dim, c_.value_dim), NAN);
    k.attention({.layout = layout_,
                 .pages = pages(0),
                 .q = q_.data(),
                 .q_stride = c_.heads * c_.key_dim,
                 .out = out.data(),
                 .out_stride = c_.heads * c_.value_dim,
                 .heads = c_.heads,
                 .scale = 0.17f,
                 .window = c_.window,
                 .span_begin = begin.data(),
                 .span_end = end.data(),
                 .rows = c_.positions,
                 .row_tile = row_tile,
                 .scores = scores.data(),
                 .scores_stride = scores_stride,
                 .widened = widened.data()},
                {0, (c_.positions + row_tile - 1) / row_tile * c_.kv_heads});
    return out;
  }

  // As the cache returns them, for one kv head: [positions, dims].
  std::vector<float> cached(const std::vector<float>& all, std::size_t dims, std::size_t head) const {
    std::vector<float> out;
    for (std::size_t p = 0; p < c_.positions; ++p)
      for (std::size_t i = 0; i < dims; ++i) {
        const float v = all[(p * c_.kv_heads + head) * dims + i];
        out.push_back(c_.type == KvType::kF32 ? v : half_to_float(float_to_half(v)));
      }
    return out;
  }

  std::span<const float> query(std::size_t position, std::size_t head) const {
    return std::span(q_).subspan((position * c_.heads + head) * c_.key_dim, c_.key_dim);
  }
  std::optional<float> sink(std::size_t head) const { return c_.sinks ? std::optional(sinks_[head]) : std::nullopt; }
  const std::vector<float>& keys() const { return keys_; }
  const std::vector<float>& values() const { return values_; }

 private:
  Case c_;
  KvLayout layout_;
  std::vector<float> keys_, values_, q_, sinks_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> table_;
  std::size_t stride_ = 0;
  std::vector<std::uint32_t> sequences_, positions_;
};

const Case kCases[] = {
    {KvType::kF32, 4, 2, 32, 32, 150, 0, 0},
    {KvType::kF16, 4, 1, 64, 64, 131, 0, 0},
    {KvType::kF16, 3, 3, 80, 80, 66, 0, 0},
    {KvType::kF16, 8, 2, 128, 128, 129, 0, 0},
    {KvType::kF32, 2, 1, 40, 24, 70, 0, 0},
    {KvType::kF16, 2, 1, 7, 9, 65, 0, 0},
    {KvType::kF32, 2, 2, 32, 32, 200, 5, 0},
    {KvType::kF16, 2, 1, 32, 32, 260, 70, 0},
    {KvType::kF32, 2, 1, 32, 32, 130, 0, 30.0f},
    {KvType::kF16, 1, 1, 16, 16, 1, 0, 0},
    {KvType::kF16, 4, 2, 64, 64, 140, 0, 0, true},
    {KvType::kF32, 2, 1, 33, 17, 90, 8, 20.0f, true},
    {KvType::kF16, 16, 2, 64, 64, 131, 0, 0},
    {KvType::kF32, 15, 1, 40, 24, 70, 9, 0, true},
    {KvType::kF16, 35, 1, 16, 24, 129, 30, 0},
    {KvType::kF16, 14, 2, 40, 72, 200, 0, 0},
    {KvType::kF16, 16, 2, 96, 80, 131, 0, 0},
    {KvType::kF16, 4, 4, 32, 32, 200, 40, 0, false, true},
    {KvType::kF32, 8, 1, 32, 32, 200, 64, 0, true, true},
};

TEST(Attention, EqualsTheWrittenOrderAtEveryPosition) {
  Random random(20);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << "heads " << c.heads << "/" << c.kv_heads << " dims " << c.key_dim << "/"
                                      << c.value_dim << " window " << c.window << " " << random.note());
    Cache cache(c, random);
    std::vector<float> expected(c.positions * c.heads * c.value_dim);
    for (std::size_t kv = 0; kv < c.kv_heads; ++kv) {
      const auto keys = cache.cached(cache.keys(), c.key_dim, kv),
                 values = cache.cached(cache.values(), c.value_dim, kv);
      for (std::size_t p = 0; p < c.positions; ++p) {
        for (std::size_t h = kv * (c.heads / c.kv_heads); h < (kv + 1) * (c.heads / c.kv_heads); ++h) {
          const auto o = reference::attention_exact(cache.query(p, h), std::span(keys).first((p + 1) * c.key_dim),
                                                    std::span(values).first((p + 1) * c.value_dim),
                                                    {.position = static_cast<std::uint32_t>(p),
                                                     .window = c.window_at(p),
                                                     .scale = 0.17f,
                                                     .softcap = c.softcap,
                                                     .sink = cache.sink(h)});
          std::copy(o.begin(), o.end(),
                    expected.begin() + static_cast<std::ptrdiff_t>((p * c.heads + h) * c.value_dim));
        }
      }
    }
    // Cached one by one, in odd chunks, or at once: the bits are the same.
    for (host::Isa isa : isas())
      for (std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{63}, std::size_t{64}, c.positions})
        ASSERT_TRUE(same_bits(cache.run(kernels(isa), chunk), expected)) << host::isa_name(isa) << " chunk " << chunk;
    // Neighbours of other sequences share no tile.
    cache.alternate();
    for (host::Isa isa : isas())
      ASSERT_TRUE(same_bits(cache.run(kernels(isa), c.positions), expected)) << host::isa_name(isa) << " alternating";
  }
}

TEST(Attention, IsCloseToTheFormula) {
  Random random(21);
  SCOPED_TRACE(random.note());
  for (const Case& c : {Case{KvType::kF32, 1, 1, 64, 64, 300, 0, 0}, Case{KvType::kF32, 1, 1, 64, 64, 300, 100, 20.0f},
                        Case{KvType::kF32, 1, 1, 64, 64, 300, 128, 0, true}}) {
    Cache cache(c, random);
    const auto out = cache.run(kernels(isas().back()), 300);
    for (std::size_t p = 0; p < c.positions; ++p) {
      const auto exact =
          reference::attention_reference(cache.query(p, 0), std::span(cache.keys()).first((p + 1) * c.key_dim),
                                         std::span(cache.values()).first((p + 1) * c.value_dim),
                                         {.position = p,
                                          .window = c.window,
                                          .scale = static_cast<double>(0.17f),
                                          .softcap = c.softcap,
                                          .sink = cache.sink(0)});
      // Scores of magnitude < 8 carry 64 roundings of 2^-24 each, which the exponential turns into a relative 3e-5.
      for (std::size_t i = 0; i < c.value_dim; ++i) EXPECT_NEAR(out[p * c.value_dim + i], exact[i], 3e-5);
    }
  }
}

// Spans of rows that see each other and nothing else: bits do not tell where in the batch a span lies.
TEST(Attention, ASpanIsItsOwnWorld) {
  Random random(22);
  SCOPED_TRACE(random.note());
  for (const Case& c : {Case{KvType::kF32, 2, 2, 72, 72, 150, 0, 0}, Case{KvType::kF32, 3, 1, 7, 5, 131, 0, 0},
                        Case{KvType::kF16, 2, 2, 32, 32, 150, 9, 0}, Case{KvType::kF16, 12, 1, 16, 48, 131, 50, 0}}) {
    Cache cache(c, random);
    cache.run(kernels(isas().back()), c.positions);
    const std::vector<std::uint32_t> spans = {0, 1, 17, 90, static_cast<std::uint32_t>(c.positions)};
    std::vector<std::uint32_t> begin, end;
    for (std::size_t s = 0; s + 1 < spans.size(); ++s)
      for (std::uint32_t r = spans[s]; r < spans[s + 1]; ++r) begin.push_back(spans[s]), end.push_back(spans[s + 1]);
    std::vector<float> expected(c.positions * c.heads * c.value_dim);
    for (std::size_t p = 0; p < c.positions; ++p)
      for (std::size_t h = 0; h < c.heads; ++h) {
        const std::size_t kv = h / (c.heads / c.kv_heads), reach = c.window == 0 ? c.positions : c.window;
        const std::size_t first = p - std::min(p - begin[p], reach - 1),
                          n = std::min<std::size_t>(end[p], p + reach) - first;
        const auto keys = cache.cached(cache.keys(), c.key_dim, kv),
                   values = cache.cached(cache.values(), c.value_dim, kv);
        const auto o =
            reference::attention_exact(cache.query(p, h), std::span(keys).subspan(first * c.key_dim, n * c.key_dim),
                                       std::span(values).subspan(first * c.value_dim, n * c.value_dim),
                                       {.position = static_cast<std::uint32_t>(n - 1), .scale = 0.17f});
        std::copy(o.begin(), o.end(), expected.begin() + static_cast<std::ptrdiff_t>((p * c.heads + h) * c.value_dim));
      }
    for (host::Isa isa : isas())
      for (const std::size_t row_tile : {std::size_t{3}, kTileQueries})
        ASSERT_TRUE(same_bits(cache.attend_spans(kernels(isa), begin, end, row_tile), expected))
            << host::isa_name(isa) << " tile " << row_tile;
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::simd
