#include "engine/sampling/logprobs.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/philox.h"

namespace llorch::engine::sampling {
namespace {

std::vector<float> random_logits(std::uint64_t seed, std::size_t size, float step) {
  std::vector<float> l(size);
  for (std::size_t i = 0; i < size; ++i) {
    const float u = base::philox_uniform(
        seed, {.position = static_cast<std::uint32_t>(i), .purpose = base::PhiloxPurpose::kTestWeights});
    l[i] = std::floor((u * 40.0f - 20.0f) / step) * step;  // coarse steps make ties
  }
  return l;
}

// Log-probabilities are the log-softmax of the raw logits, computed here in float64.
TEST(TokenLogprobs, EqualLogSoftmax) {
  EXPECT_TRUE(rc::check("logprobs", [] {
    const auto size = *rc::gen::inRange<std::size_t>(1, 3000);
    const auto l = random_logits(*rc::gen::arbitrary<std::uint64_t>(), size,
                                 *rc::gen::elementOf(std::vector<float>{0.0001f, 4.0f}));
    const auto chosen = *rc::gen::inRange<std::size_t>(0, size);
    const auto top = *rc::gen::inRange<std::uint32_t>(0, 21);
    const auto got = token_logprobs(l, TokenId{static_cast<std::uint32_t>(chosen)}, top);

    double sum = 0;
    for (const float v : l) sum += std::exp(static_cast<double>(v));
    const auto near = [&](const TokenLogprob& p) {
      return std::abs(p.logprob - (l[index(p.token)] - std::log(sum))) < 2e-5;
    };
    RC_ASSERT(index(got.chosen.token) == chosen);
    RC_ASSERT(near(got.chosen));
    std::vector<std::uint32_t> ids(size);
    std::iota(ids.begin(), ids.end(), 0u);
    std::sort(ids.begin(), ids.end(), [&](auto a, auto b) { return l[a] != l[b] ? l[a] > l[b] : a < b; });
    RC_ASSERT(got.likeliest().size() == std::min<std::size_t>(top, size));
    for (std::size_t i = 0; i < got.top_count; ++i) {
      RC_ASSERT(index(got.top[i].token) == ids[i]);
      RC_ASSERT(near(got.top[i]));
    }
  }));
}

TEST(TokenLogprobs, StayFiniteAtTheExtremes) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> l{kMax, -kMax, 0.0f};
  const auto got = token_logprobs(l, TokenId{1}, 3);
  EXPECT_EQ(got.chosen.logprob, -kMax);
  EXPECT_EQ(index(got.top[0].token), 0u);
  EXPECT_EQ(got.top[0].logprob, 0.0f);
  EXPECT_EQ(token_logprobs(std::vector<float>{3.0f}, TokenId{0}, 20).likeliest().size(), 1u);
}

}  // namespace
}  // namespace llorch::engine::sampling
