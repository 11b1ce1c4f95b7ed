#include <cmath>
#include <numeric>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::simd {
namespace {

using testing::isas;
using testing::Random;
using testing::same_bits;

struct LatentCase {
  KvType type;
  std::size_t heads, latent, rest, positions;
};
const LatentCase kLatentCases[] = {{KvType::kF32, 4, 32, 8, 150},
                                   {KvType::kF16, 7, 48, 16, 131},
                                   {KvType::kF16, 1, 7, 2, 66},
                                   {KvType::kF32, 9, 16, 0, 1},
                                   {KvType::kF16, 16, 20, 4, 64}};

// One sequence's cache rows in scattered pages full of NaN, and queries at every position.
class LatentCache {
 public:
  static constexpr std::size_t kOffset = 64;

  LatentCache(const LatentCase& c, Random& random) : c_(c), key_dim_(c.latent + c.rest) {
    rows_ = random.normals(c.positions * key_dim_);
    q_ = random.normals(c.positions * c.heads * key_dim_);
    const std::size_t pages = (c.positions + kPagePositions - 1) / kPagePositions;
    const KvLayout layout{c.type, 1, key_dim_, 0};
    storage_.assign(pages, std::vector<std::byte>(kOffset + layout.value_offset(1), std::byte{0xFF}));
    for (std::size_t i = pages; i-- > 0;) table_.push_back(storage_[i].data());
    sequences_.assign(c.positions, 0);
    positions_.resize(c.positions);
    std::iota(positions_.begin(), positions_.end(), 0u);
  }

  // `chosen`: [positions, words] or empty.
  std::vector<float> run(const Kernels& k, std::size_t chunk, std::span<const std::uint32_t> chosen = {}) {
    const std::size_t words = chosen.size() / c_.positions;
    const std::size_t unit_heads = chunk == 1 ? kLatentHeads : 1 + chunk % kLatentHeads;  // which changes no bit
    const std::size_t stride = table_.size() * kPagePositions, per_row = (c_.heads + unit_heads - 1) / unit_heads;
    std::vector<float> out(c_.positions * c_.heads * c_.latent), scores(unit_heads * stride);
    for (std::size_t row = 0; row < c_.positions; row += chunk) {
      const std::size_t n = std::min(chunk, c_.positions - row);
      const KvPages pages{.pages = table_.data(),
                          .pages_stride = table_.size(),
                          .offset_bytes = kOffset,
                          .sequence_of_row = sequences_.data() + row,
                          .positions = positions_.data() + row};
      k.kv_append({.layout = {c_.type, 1, key_dim_, 0},
                   .pages = pages,
                   .keys = rows_.data() + row * key_dim_,
                   .key_stride = key_dim_},
                  {0, n});
      k.latent_attention({.type = c_.type,
                          .pages = pages,
                          .q = q_.data() + row * c_.heads * key_dim_,
                          .q_stride = c_.heads * key_dim_,
                          .out = out.data() + row * c_.heads * c_.latent,
                          .out_stride = c_.heads * c_.latent,
                          .heads = c_.heads,
                          .unit_heads = unit_heads,
                          .latent_dim = c_.latent,
                          .key_dim = key_dim_,
                          .scale = 0.13f,
                          .scores = scores.data(),
                          .scores_stride = stride,
                          .chosen = chosen.empty() ? nullptr : chosen.data() + row * words,
                          .chosen_words = words},
                         {0, n * per_row});
    }
    return out;
  }

  // Of position p once all are cached; weights are [positions, q_width], those of the heads first.
  std::vector<float> index_scores(const Kernels& k, std::uint32_t p, const std::vector<float>& weights) {
    std::vector<float> scores(table_.size() * kPagePositions), head_scores(c_.heads * kPagePositions);
    k.index_scores({.type = c_.type,
                    .pages = {.pages = table_.data(),
                              .pages_stride = table_.size(),
                              .offset_bytes = kOffset,
                              .sequence_of_row = sequences_.data(),
                              .positions = positions_.data()},
                    .q = q_.data(),
                    .weights = weights.data(),
                    .q_stride = q_width(),
                    .heads = c_.heads,
                    .key_dim = key_dim_,
                    .scale = 0.13f,
                    .head_scores = head_scores.data(),
                    .scores = scores.data()},
                   {p, p + std::size_t{1}});
    scores.resize(p + std::size_t{1});
    return scores;
  }

  std::vector<float> cached() const {  // as the cache returns them
    std::vector<float> out = rows_;
    if (c_.type == KvType::kF16)
      for (float& v : out) v = half_to_float(float_to_half(v));
    return out;
  }
  std::span<const float> query(std::size_t position, std::size_t head) const {
    return std::span(q_).subspan((position * c_.heads + head) * key_dim_, key_dim_);
  }
  std::span<const float> queries(std::size_t position) const {
    return std::span(q_).subspan(position * q_width(), q_width());
  }
  std::size_t key_dim() const { return key_dim_; }
  std::size_t q_width() const { return c_.heads * key_dim_; }

 private:
  LatentCase c_;
  std::size_t key_dim_;
  std::vector<float> rows_, q_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> table_;
  std::vector<std::uint32_t> sequences_, positions_;
};

TEST(LatentAttention, EqualsTheWrittenOrderAtEveryPosition) {
  Random random(70);
  for (const LatentCase& c : kLatentCases) {
    SCOPED_TRACE(::testing::Message() << "heads " << c.heads << " dims " << c.latent << "+" << c.rest << " "
                                      << random.note());
    LatentCache cache(c, random);
    const auto rows = cache.cached();
    std::vector<float> expected;
    for (std::uint32_t p = 0; p < c.positions; ++p)
      for (std::size_t h = 0; h < c.heads; ++h) {
        const auto o = reference::latent_attention_exact(cache.query(p, h), rows,
                                                         {.position = p, .latent_dim = c.latent, .scale = 0.13f});
        expected.insert(expected.end(), o.begin(), o.end());
      }
    for (host::Isa isa : isas())
      for (std::size_t chunk : {std::size_t{1}, std::size_t{7}, c.positions})
        ASSERT_TRUE(same_bits(cache.run(kernels(isa), chunk), expected)) << host::isa_name(isa) << " chunk " << chunk;
  }
}

// Words of random bits for every position, of which its own is set and those behind it mean nothing.
std::vector<std::uint32_t> random_bits(Random& random, std::size_t positions, std::size_t words) {
  std::vector<std::uint32_t> bits(positions * words);
  for (std::size_t p = 0; p < positions; ++p)
    for (std::size_t j = 0; j < positions; ++j)
      if (j == p || random.normal() > 1.0f) bits[p * words + j / 32] |= 1U << j % 32;
  return bits;
}

TEST(LatentAttention, CountsOnlyChosenPositions) {
  Random random(75);
  for (const LatentCase& c : kLatentCases) {
    SCOPED_TRACE(::testing::Message() << "heads " << c.heads << " positions " << c.positions << " " << random.note());
    LatentCache cache(c, random);
    const auto rows = cache.cached();
    const std::size_t words = (c.positions + 31) / 32 + 1;
    const auto bits = random_bits(random, c.positions, words);
    std::vector<float> expected;
    for (std::uint32_t p = 0; p < c.positions; ++p)
      for (std::size_t h = 0; h < c.heads; ++h) {
        const auto o = reference::latent_attention_exact(cache.query(p, h), rows,
                                                         {.position = p,
                                                          .latent_dim = c.latent,
                                                          .scale = 0.13f,
                                                          .chosen = std::span(bits).subspan(p * words, words)});
        expected.insert(expected.end(), o.begin(), o.end());
      }
    for (host::Isa isa : isas())
      for (std::size_t chunk : {std::size_t{1}, std::size_t{7}, c.positions})
        ASSERT_TRUE(same_bits(cache.run(kernels(isa), chunk, bits), expected)) << host::isa_name(isa) << " " << chunk;
  }
}

// The scores of an index over the same cache, whose queries are the heads' and whose weights are any numbers.
TEST(IndexScores, EqualTheWrittenOrderAndAreCloseToTheFormula) {
  Random random(76);
  for (const LatentCase& c : kLatentCases) {
    SCOPED_TRACE(::testing::Message() << "heads " << c.heads << " positions " << c.positions << " " << random.note());
    LatentCache cache(c, random);
    const auto rows = cache.cached(), weights = random.normals(c.positions * cache.q_width());
    for (host::Isa isa : isas()) {
      cache.run(kernels(isa), c.positions);  // fills the cache
      for (std::uint32_t p = 0; p < c.positions; ++p) {
        const auto scores = cache.index_scores(kernels(isa), p, weights);
        const auto q = cache.queries(p), w = std::span(weights).subspan(p * cache.q_width(), c.heads);
        const auto keys = std::span(rows).first((p + 1) * cache.key_dim());
        ASSERT_TRUE(same_bits(scores, reference::index_scores_exact(q, w, keys, 0.13f))) << host::isa_name(isa);
        const auto exact = reference::index_scores_reference(q, w, keys, static_cast<double>(0.13f));
        for (std::size_t j = 0; j <= p; ++j) ASSERT_NEAR(scores[j], exact[j], 1e-4) << p << " " << j;
      }
    }
  }
}

TEST(LatentAttention, IsCloseToTheFormula) {
  Random random(71);
  SCOPED_TRACE(random.note());
  const LatentCase c{KvType::kF32, 2, 48, 16, 200};
  LatentCache cache(c, random);
  const auto out = cache.run(kernels(isas().back()), c.positions), rows = cache.cached();
  std::vector<float> latents;
  for (std::size_t p = 0; p < c.positions; ++p)
    for (std::size_t i = 0; i < c.latent; ++i) latents.push_back(rows[p * cache.key_dim() + i]);
  for (std::size_t p = 0; p < c.positions; ++p)
    for (std::size_t h = 0; h < c.heads; ++h) {
      const auto exact = reference::attention_reference(
          cache.query(p, h), std::span(rows).first((p + 1) * cache.key_dim()),
          std::span(latents).first((p + 1) * c.latent),
          {.position = p, .window = 0, .scale = static_cast<double>(0.13f), .softcap = 0});
      // Scores of magnitude < 8 carry 64 roundings of 2^-24 each, which the exponential turns into a relative 3e-5.
      for (std::size_t i = 0; i < c.latent; ++i)
        ASSERT_NEAR(out[(p * c.heads + h) * c.latent + i], exact[i], 3e-5) << p;
    }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::simd
