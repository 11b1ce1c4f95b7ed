#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "engine/sampling/logits/dry.h"
#include "engine/sampling/logits/penalties.h"
#include "engine/sampling/logits/row.h"

namespace llorch::engine::sampling::logits {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr std::size_t kVocab = 40;

std::vector<TokenId> ids(std::initializer_list<std::uint32_t> list) {
  std::vector<TokenId> out;
  for (const auto id : list) out.push_back(TokenId{id});
  return out;
}

template <class Steps>
void apply(Steps&& steps, std::span<float> l, const History& history) {
  std::vector<plan::RowEdit> edits;
  steps.edits(history, edits);
  apply_edits(l, edits);
}

std::vector<float> ramp() {
  std::vector<float> l(kVocab);
  for (std::size_t i = 0; i < kVocab; ++i) l[i] = 0.5f * static_cast<float>(i) - 9.75f;
  return l;
}

TEST(Row, BiasAddsAndStaysFinite) {
  std::vector<float> l{1.0f, kMax, -kMax};
  std::vector<plan::RowEdit> edits;
  bias_edits(std::vector<LogitBias>{{TokenId{0}, 2.0f}, {TokenId{0}, -0.5f}, {TokenId{1}, 100.0f}}, edits);
  apply_edits(l, edits);
  EXPECT_EQ(l, (std::vector<float>{2.5f, kMax, -kMax}));
}

TEST(Row, MaskBitsAreLeastSignificantFirst) {
  for (std::size_t vocab : {1u, 31u, 32u, 33u, 70u}) {
    std::vector<std::uint32_t> mask((vocab + 31) / 32);
    for (std::size_t i = 0; i < vocab; i += 3) mask[i / 32] |= 1u << (i % 32);
    std::vector<float> l(vocab, 1.0f);
    apply_mask(l, mask);
    for (std::size_t i = 0; i < vocab; ++i) EXPECT_EQ(l[i], i % 3 == 0 ? 1.0f : kMasked) << vocab << ' ' << i;
    apply_mask(l, {});
    EXPECT_EQ(l[0], 1.0f);
  }
}

// The penalties equal their formulas in float64 over a map of counts.
TEST(Penalties, EqualTheNaiveReference) {
  EXPECT_TRUE(rc::check("penalties", [] {
    SamplingParams p;
    const auto of = [](std::vector<float> v) { return *rc::gen::elementOf(v); };
    p.repetition_penalty = of({1.0f, 0.5f, 1.3f, 2.0f});
    p.frequency_penalty = of({0.0f, 0.7f, -2.0f});
    p.presence_penalty = of({0.0f, 1.5f, -0.4f});
    p.penalty_last_n = *rc::gen::inRange(0u, 30u);
    p.repetition_scope = *rc::gen::element(PenaltyScope::kAll, PenaltyScope::kOutput);
    p.frequency_scope = *rc::gen::element(PenaltyScope::kAll, PenaltyScope::kOutput);
    std::vector<TokenId> tokens;
    for (int i = *rc::gen::inRange(0, 25); i > 0; --i) {
      tokens.push_back(TokenId{*rc::gen::inRange<std::uint32_t>(0, kVocab)});
    }
    const auto prompt = *rc::gen::inRange<std::size_t>(0, tokens.size() + 1);

    std::map<std::uint32_t, int> repeated, counted;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (p.penalty_last_n != 0 && i + p.penalty_last_n < tokens.size()) continue;
      if (p.repetition_scope == PenaltyScope::kAll || i >= prompt) ++repeated[index(tokens[i])];
      if (p.frequency_scope == PenaltyScope::kAll || i >= prompt) ++counted[index(tokens[i])];
    }
    Penalties penalties(p, kVocab);
    for (int call = 0; call < 2; ++call) {  // the second call finds no trace of the first
      std::vector<float> l = ramp();
      apply(penalties, l, {.tokens = tokens, .prompt_tokens = prompt});
      for (std::uint32_t id = 0; id < kVocab; ++id) {
        double expected = ramp()[id];
        if (repeated.contains(id)) expected *= expected > 0 ? 1.0 / p.repetition_penalty : p.repetition_penalty;
        if (counted.contains(id)) expected -= counted[id] * p.frequency_penalty + p.presence_penalty;
        RC_ASSERT(std::abs(l[id] - expected) < 1e-5);
      }
    }
  }));
}

TEST(Penalties, ResultsStayFinite) {
  std::vector<float> l{0.0f, 5.0f, -kMax};
  const auto seen = ids({1, 2});
  apply(Penalties({.repetition_penalty = 0.0f, .presence_penalty = 2.0f}, 3), l, {.tokens = seen});
  EXPECT_EQ(l, (std::vector<float>{0.0f, kMax, -2.0f}));  // 5 / 0 is clamped; -max * 0 is -0
}

std::map<std::uint32_t, float> lowered(const SamplingParams& p, const History& history) {
  std::vector<float> l(kVocab, 0.0f);
  apply(Dry(p, {.vocab = kVocab, .history_max = history.tokens.size()}), l, history);
  std::map<std::uint32_t, float> out;
  for (std::uint32_t id = 0; id < kVocab; ++id) {
    if (l[id] != 0.0f) out[id] = -l[id];
  }
  return out;
}

using Lowered = std::map<std::uint32_t, float>;

TEST(Dry, ByHand) {
  const SamplingParams p{.dry_multiplier = 1.0f, .dry_base = 2.0f};
  // "1 2 3" was followed by 4 and the end is "1 2 3": 4 would lengthen a repeat of 3, so 2^(3 - 2).
  const auto tokens = ids({1, 2, 3, 4, 9, 1, 2, 3});
  EXPECT_EQ(lowered(p, {.tokens = tokens}), (Lowered{{4, 2.0f}}));
  // Only "3" matches: below the allowed length.
  const auto single = ids({3, 4, 9, 3});
  EXPECT_EQ(lowered(p, {.tokens = single}), (Lowered{}));
  // The longest match of a token counts, and several tokens may be lowered.
  const auto twice = ids({1, 2, 7, 5, 1, 2, 8, 0, 5, 1, 2});
  EXPECT_EQ(lowered(p, {.tokens = twice}), (Lowered{{7, 1.0f}, {8, 2.0f}}));
  // A match may overlap the end.
  const auto same = ids({6, 6, 6, 6, 6});
  EXPECT_EQ(lowered(p, {.tokens = same}), (Lowered{{6, 4.0f}}));
  // A break ends a match on either side and is never lowered itself.
  const std::vector<std::uint8_t> inside{0, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(lowered(p, {.tokens = tokens, .breaks = inside}), (Lowered{}));
  const std::vector<std::uint8_t> at_start{1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(lowered(p, {.tokens = tokens, .breaks = at_start}), (Lowered{{4, 1.0f}}));
  const std::vector<std::uint8_t> next{0, 0, 0, 1, 0, 0, 0, 0};
  EXPECT_EQ(lowered(p, {.tokens = tokens, .breaks = next}), (Lowered{}));
  // A window that does not reach the first occurrence.
  SamplingParams narrow = p;
  narrow.dry_last_n = 4;
  EXPECT_EQ(lowered(narrow, {.tokens = tokens}), (Lowered{}));
}

// Against the definition, position by position, in float64.
TEST(Dry, EqualsTheNaiveReference) {
  EXPECT_TRUE(rc::check("dry", [] {
    SamplingParams p{.dry_multiplier = 0.8f, .dry_base = *rc::gen::element(1.0f, 1.1f, 1.75f)};
    p.dry_allowed_length = *rc::gen::inRange(1u, 5u);
    p.dry_last_n = *rc::gen::inRange(0u, 60u);
    std::vector<TokenId> tokens;
    std::vector<std::uint8_t> breaks;
    const auto alphabet = *rc::gen::inRange(1u, 4u);
    for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
      tokens.push_back(TokenId{*rc::gen::inRange(0u, alphabet)});
      breaks.push_back(*rc::gen::inRange(0, 15) == 0 ? 1 : 0);
    }
    const std::size_t size = tokens.size();
    const std::size_t begin = p.dry_last_n != 0 && p.dry_last_n < size ? size - p.dry_last_n : 0;
    Lowered expected;
    for (std::size_t i = begin; i < size; ++i) {
      if (breaks[i] != 0) continue;
      std::size_t n = 0;
      while (i - n > begin && tokens[i - n - 1] == tokens[size - n - 1] && breaks[i - n - 1] == 0 &&
             breaks[size - n - 1] == 0) {
        ++n;
      }
      if (n < p.dry_allowed_length) continue;
      float& most = expected[index(tokens[i])];
      const double power = std::pow(static_cast<double>(p.dry_base), static_cast<double>(n - p.dry_allowed_length));
      most = std::max(most, static_cast<float>(0.8 * power));
    }
    const Lowered got = lowered(p, {.tokens = tokens, .breaks = breaks});
    RC_ASSERT(got.size() == expected.size());
    for (const auto& [id, by] : expected) {
      RC_ASSERT(got.contains(id));
      RC_ASSERT(std::abs(got.at(id) / by - 1.0f) < 1e-4f);
    }
  }));
}

TEST(Dry, LongRepeatsStayFiniteAndLinear) {
  const std::vector<TokenId> same(100'000, TokenId{6});  // quadratic work would not end in the time of a test run
  std::vector<float> l(kVocab, 0.0f);
  apply(Dry({.dry_multiplier = 1.0f}, {.vocab = kVocab, .history_max = same.size()}), l, {.tokens = same});
  EXPECT_EQ(l[6], -kMax);
}

}  // namespace
}  // namespace llorch::engine::sampling::logits
