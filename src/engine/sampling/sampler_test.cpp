#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>

#include "base/philox.h"
#include "engine/sampling/exp.h"

namespace {
std::atomic<std::size_t> g_allocations{0};
}

// Not inlined: g++ would pair the malloc inside with the delete outside and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace llorch::engine::sampling {
namespace {

struct Request {
  SamplingParams params;
  std::vector<float> logits;
  std::vector<TokenId> history;
  std::uint32_t position = 0;
};

// The header's definition word for word: everything sorted, nothing skipped.
TokenId naive_sample(const Request& r) {
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> l = r.logits;
  std::vector<TokenId> seen = r.history;
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const TokenId id : seen) {
    float& v = l[index(id)];
    v = v > 0 ? v / r.params.repetition_penalty : v * r.params.repetition_penalty;
    v = std::min(std::max(v, -kMax), kMax);
  }
  const float l_max = *std::max_element(l.begin(), l.end());
  std::vector<std::uint32_t> ids(l.size());
  std::iota(ids.begin(), ids.end(), 0u);
  if (r.params.temperature == 0) {
    return TokenId{*std::find_if(ids.begin(), ids.end(), [&](auto id) { return l[id] == l_max; })};
  }
  std::vector<float> x(l.size());
  for (std::size_t i = 0; i < l.size(); ++i) x[i] = (l[i] - l_max) / r.params.temperature;
  std::sort(ids.begin(), ids.end(), [&](auto a, auto b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  if (r.params.top_k > 0) ids.resize(std::min<std::size_t>(ids.size(), r.params.top_k));
  if (r.params.top_p < 1) {
    float all = 0;
    for (const auto id : ids) all += exp_s1(x[id]);
    const float enough = r.params.top_p * all;
    float sum = 0;
    std::size_t n = 0;
    do {
      sum += exp_s1(x[ids[n++]]);
    } while (sum < enough);
    ids.resize(n);
  }
  if (r.params.min_p > 0) {
    ids.erase(std::find_if(ids.begin(), ids.end(), [&](auto id) { return exp_s1(x[id]) < r.params.min_p; }), ids.end());
  }
  float total = 0;
  for (const auto id : ids) total += exp_s1(x[id]);
  const float target = base::philox_uniform(r.params.seed, {r.position, 0, r.params.choice}) * total;
  float sum = 0;
  for (const auto id : ids) {
    sum += exp_s1(x[id]);
    if (sum > target) return TokenId{id};
  }
  ADD_FAILURE() << "no sum exceeds the target";
  return TokenId{0};
}

TokenId sample(const Request& r) {
  return Sampler(r.params, r.logits.size()).sample(r.logits, r.history, r.position).value();
}

float unit(std::uint64_t seed, std::uint32_t i) {
  return base::philox_uniform(seed, {.position = i, .purpose = base::PhiloxPurpose::kTestWeights});
}

// Shapes that real models and hostile ones give: peaked, flat, many ties, huge range.
std::vector<float> make_logits(std::uint64_t seed, std::size_t size, int shape) {
  std::vector<float> logits(size);
  for (std::size_t i = 0; i < size; ++i) {
    const float u = unit(seed, static_cast<std::uint32_t>(i));
    switch (shape) {
      case 0: logits[i] = 40.0f * u - 20.0f; break;
      case 1: logits[i] = 0.1f * u; break;
      case 2: logits[i] = std::floor(u * 6.0f) - 3.0f; break;
      case 3:
        logits[i] = (u - 0.5f) * std::exp2(256.0f * unit(seed + 1, static_cast<std::uint32_t>(i)) - 128.0f);
        break;
      default: logits[i] = -4.0f * std::log(u + 1e-7f); break;
    }
  }
  return logits;
}

// M0-W-1421, engine.md §5.3: the lazy walk gives what sorting and summing everything gives, bit for bit.
TEST(Sampler, EqualsTheNaiveDefinition) {
  const bool ok = rc::check("sampler == naive", [] {
    Request r;
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto size = *rc::gen::inRange<std::size_t>(1, 3000);
    r.logits = make_logits(seed, size, *rc::gen::inRange(0, 5));
    const auto pick = [](std::initializer_list<float> values) {
      return *rc::gen::elementOf(std::vector<float>(values));
    };
    r.params.temperature = pick({0.0f, 1e-30f, 0.01f, 0.7f, 1.0f, 2.0f});
    r.params.top_p = pick({0.0f, 1e-6f, 0.3f, 0.9f, 0.999999f, 1.0f});
    r.params.min_p = pick({0.0f, 0.0f, 1e-9f, 0.05f, 1.0f});
    r.params.repetition_penalty = pick({1.0f, 0.0f, 1e-40f, 0.5f, 1.3f, 2.0f});
    r.params.top_k = *rc::gen::elementOf(std::vector<std::uint32_t>{0, 1, 40, static_cast<std::uint32_t>(size)});
    r.params.top_k = std::min(r.params.top_k, static_cast<std::uint32_t>(size));
    r.params.seed = seed;
    r.params.choice = *rc::gen::inRange(0u, 3u);
    for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
      r.history.push_back(TokenId{*rc::gen::inRange<std::uint32_t>(0, static_cast<std::uint32_t>(size))});
    }
    Sampler sampler(r.params, size);
    for (r.position = 0; r.position < 8; ++r.position) {
      RC_ASSERT(index(sampler.sample(r.logits, r.history, r.position).value()) == index(naive_sample(r)));
    }
  });
  EXPECT_TRUE(ok);
}

TEST(Sampler, EqualsTheNaiveDefinitionOnALargeVocabulary) {
  for (int shape = 0; shape < 5; ++shape) {
    for (const float top_p : {0.95f, 1.0f}) {
      Request r{.params = {.top_p = top_p, .seed = 7}, .logits = make_logits(11, 128 * 1024, shape), .history = {}};
      for (r.position = 0; r.position < 3; ++r.position) {
        EXPECT_EQ(index(sample(r)), index(naive_sample(r))) << "shape " << shape << " top_p " << top_p;
      }
    }
  }
}

// SYS-8.2.2: a draw does not depend on the draws before it.
TEST(Sampler, DrawsAreIndependentOfWhatWasDrawnBefore) {
  const Request r{.params = {.temperature = 1.5f, .repetition_penalty = 1.2f, .seed = 3},
                  .logits = make_logits(5, 500, 0),
                  .history = {TokenId{3}, TokenId{3}, TokenId{9}}};
  Sampler sampler(r.params, r.logits.size());
  std::vector<TokenId> forward(50), backward(50);
  for (std::uint32_t p = 0; p < 50; ++p) forward[p] = sampler.sample(r.logits, r.history, p).value();
  for (std::uint32_t p = 50; p-- > 0;) backward[p] = sampler.sample(r.logits, r.history, p).value();
  EXPECT_TRUE(forward == backward);
  EXPECT_GT(std::count_if(forward.begin(), forward.end(), [&](TokenId id) { return id != forward[0]; }), 0);
}

TEST(Sampler, GreedyTakesTheLowestIdOnTies) {
  EXPECT_EQ(index(sample({.params = {.temperature = 0}, .logits = {1, 5, 5, 2}, .history = {}})), 1u);
  EXPECT_EQ(index(sample({.params = {.temperature = 0}, .logits = {-0.0f, 0.0f}, .history = {}})), 0u);
}

TEST(Sampler, RepetitionPenaltyCountsAnIdOnceAndLowersBothSigns) {
  const SamplingParams greedy{.temperature = 0, .repetition_penalty = 2};
  const std::vector<TokenId> twice{TokenId{0}, TokenId{0}};
  EXPECT_EQ(index(sample({greedy, {4.0f, 1.5f}, twice})), 0u);    // 4 / 2 > 1.5; twice it would be 1
  EXPECT_EQ(index(sample({greedy, {4.0f, 2.5f}, twice})), 1u);    // 4 / 2 < 2.5
  EXPECT_EQ(index(sample({greedy, {-1.0f, -1.5f}, twice})), 1u);  // -1 * 2 < -1.5
}

TEST(Sampler, EachCutLeavesExactlyItsCandidates) {
  // Weights 1, 1/2, 1/4, 1/8 (up to rounding), total 15/8.
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits{-3 * ln2, -ln2, 0, -2 * ln2};
  const auto drawn = [&](SamplingParams params) {
    std::vector<bool> out(4);
    for (std::uint32_t p = 0; p < 400; ++p) out[index(sample({params, logits, {}, p}))] = true;
    return out;
  };
  using Set = std::vector<bool>;
  EXPECT_EQ(drawn({}), (Set{true, true, true, true}));
  EXPECT_EQ(drawn({.top_k = 2}), (Set{false, true, true, false}));
  EXPECT_EQ(drawn({.top_p = 0.52f}), (Set{false, false, true, false}));  // 8/15 = 0.533
  EXPECT_EQ(drawn({.top_p = 0.55f}), (Set{false, true, true, false}));
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.6f}), (Set{false, false, true, false}));  // 2/3 after the cut to two
  EXPECT_EQ(drawn({.min_p = 0.2f}), (Set{false, true, true, true}));
  EXPECT_EQ(drawn({.top_p = 0.0f}), (Set{false, false, true, false}));
  EXPECT_EQ(drawn({.min_p = 1.0f}), (Set{false, false, true, false}));
}

// Pearson's test with the 99.99 % quantile: fails for a wrong distribution, and never by chance, as seeds are fixed.
TEST(Sampler, DrawsFollowTheSoftmax) {
  const std::vector<float> logits{0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -2.0f, 1.5f, 0.25f, -0.5f, 1.0f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    std::array<double, 10> expected{};
    double total = 0;
    for (std::size_t i = 0; i < 10; ++i) total += expected[i] = std::exp(static_cast<double>(logits[i]) / temperature);
    std::array<int, 10> counts{};
    constexpr int kDraws = 40'000;
    Sampler sampler({.temperature = temperature, .seed = 20261121}, logits.size());
    for (std::uint32_t p = 0; p < kDraws; ++p) ++counts[index(sampler.sample(logits, {}, p).value())];
    double chi_square = 0;
    for (std::size_t i = 0; i < 10; ++i) {
      const double mean = kDraws * expected[i] / total;
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
    EXPECT_LT(chi_square, 33.7) << "temperature " << temperature;  // 9 degrees of freedom
    EXPECT_GT(chi_square, 0.5) << "temperature " << temperature;   // too good to be random
  }
}

TEST(Sampler, SeedPositionAndChoiceEachMatter) {
  const std::vector<float> flat(1000, 0.0f);
  const auto sequence = [&](SamplingParams params, std::uint32_t first) {
    std::vector<std::uint32_t> ids;
    for (std::uint32_t p = first; p < first + 4; ++p) ids.push_back(index(sample({params, flat, {}, p})));
    return ids;
  };
  const auto base_line = sequence({.seed = 1}, 0);
  EXPECT_EQ(base_line, sequence({.seed = 1}, 0));
  EXPECT_NE(base_line, sequence({.seed = 2}, 0));
  EXPECT_NE(base_line, sequence({.seed = std::uint64_t{1} << 32 | 1}, 0));
  EXPECT_NE(base_line, sequence({.seed = 1}, 1));
  EXPECT_NE(base_line, sequence({.seed = 1, .choice = 1}, 0));
}

// A change of any of these ids is a new sampler version.
TEST(Sampler, KnownAnswersOfS1) {
  EXPECT_EQ(kSamplerVersion, "s1");
  const auto logits = make_logits(42, 1000, 0);
  const auto ids = [&](SamplingParams params) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t p = 0; p < 6; ++p) out.push_back(index(sample({params, logits, {TokenId{1}}, p})));
    return out;
  };
  using Ids = std::vector<std::uint32_t>;
  EXPECT_EQ(ids({.temperature = 0}), (Ids{107, 107, 107, 107, 107, 107}));
  EXPECT_EQ(ids({.seed = 1}), (Ids{38, 697, 84, 799, 84, 668}));
  EXPECT_EQ(
      ids({.temperature = 2.0f, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f, .repetition_penalty = 1.1f, .seed = 99}),
      (Ids{591, 815, 490, 851, 516, 781}));
}

TEST(Sampler, NonFiniteLogitsAreAnErrorThatNamesThePosition) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const float temperature : {0.0f, 1.0f}) {
      const auto result = Sampler({.temperature = temperature}, 3).sample(std::array{0.0f, bad, 1.0f}, {}, 17);
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().code, base::ErrorCode::kInternal);
      EXPECT_NE(result.error().message.find("position 17"), std::string::npos);
    }
  }
}

TEST(Sampler, NoAllocationPerToken) {
  const auto logits = make_logits(1, 50'000, 1);
  const std::vector<TokenId> history(300, TokenId{5});
  Sampler sampler({.temperature = 1.3f, .top_k = 20'000, .top_p = 0.9f, .min_p = 0.1f, .repetition_penalty = 1.1f},
                  50'000);
  const std::size_t before = g_allocations;
  for (std::uint32_t p = 0; p < 20; ++p) {
    if (!sampler.sample(logits, history, p)) ADD_FAILURE();
  }
  EXPECT_EQ(g_allocations, before);
  EXPECT_GT(before, 0u);
}

// M0-W-1302: ranges of control-plane §8.4.
TEST(SamplingParams, RangesAreClosedAndNamedInTheError) {
  constexpr std::size_t kVocab = 100;
  EXPECT_TRUE(validate({}, kVocab).has_value());
  EXPECT_TRUE(
      validate({.temperature = 2, .top_k = 100, .top_p = 1, .min_p = 1, .repetition_penalty = 2}, kVocab).has_value());
  EXPECT_TRUE(
      validate({.temperature = 0, .top_k = 0, .top_p = 0, .min_p = 0, .repetition_penalty = 0}, kVocab).has_value());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [&](SamplingParams params, std::string_view field) {
    const auto result = validate(params, kVocab);
    return !result && result.error().code == base::ErrorCode::kInvalidParams &&
           result.error().message.starts_with(field);
  };
  EXPECT_TRUE(refused({.temperature = 2.001f}, "temperature"));
  EXPECT_TRUE(refused({.temperature = -0.1f}, "temperature"));
  EXPECT_TRUE(refused({.temperature = nan}, "temperature"));
  EXPECT_TRUE(refused({.top_k = 101}, "top_k"));
  EXPECT_TRUE(refused({.top_p = 1.001f}, "top_p"));
  EXPECT_TRUE(refused({.top_p = nan}, "top_p"));
  EXPECT_TRUE(refused({.min_p = -1}, "min_p"));
  EXPECT_TRUE(refused({.repetition_penalty = 2.5f}, "repetition_penalty"));
}

}  // namespace
}  // namespace llorch::engine::sampling
