#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "base/testing/allocation_counter.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/naive_chain.h"

namespace llorch::engine::sampling {
namespace {

using testing::NaiveChain;
using testing::Request;

TokenId naive_sample(const Request& r) { return NaiveChain(r.params).sample(r); }

SampleInput input_of(const Request& r) {
  return {.logits = r.logits,
          .history = {.tokens = r.history, .prompt_tokens = r.prompt_tokens, .breaks = r.breaks},
          .position = r.position,
          .mask = r.mask};
}
SamplerSizes sizes_of(const Request& r) { return {.vocab = r.logits.size(), .history_max = r.history.size()}; }

TokenId sample(const Request& r) { return Sampler(r.params, sizes_of(r)).sample(input_of(r)).value(); }

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

// M0-W-1421: the lazy walk gives what sorting and summing everything gives, bit for bit.
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
    Sampler sampler(r.params, sizes_of(r));
    for (r.position = 0; r.position < 8; ++r.position) {
      RC_ASSERT(index(sampler.sample(input_of(r)).value()) == index(naive_sample(r)));
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

// A draw does not depend on the draws before it.
TEST(Sampler, DrawsAreIndependentOfWhatWasDrawnBefore) {
  Request r{.params = {.temperature = 1.5f, .repetition_penalty = 1.2f, .seed = 3},
            .logits = make_logits(5, 500, 0),
            .history = {TokenId{3}, TokenId{3}, TokenId{9}}};
  Sampler sampler(r.params, sizes_of(r));
  std::vector<TokenId> forward(50), backward(50);
  const auto at = [&](std::uint32_t p) {
    r.position = p;
    return sampler.sample(input_of(r)).value();
  };
  for (std::uint32_t p = 0; p < 50; ++p) forward[p] = at(p);
  for (std::uint32_t p = 50; p-- > 0;) backward[p] = at(p);
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
    Sampler sampler({.temperature = temperature, .seed = 20261121}, {.vocab = logits.size()});
    for (std::uint32_t p = 0; p < kDraws; ++p) {
      ++counts[index(sampler.sample({.logits = logits, .position = p}).value())];
    }
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
      const std::array logits{0.0f, bad, 1.0f};
      const auto result =
          Sampler({.temperature = temperature}, {.vocab = 3}).sample({.logits = logits, .position = 17});
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().code, base::ErrorCode::kInternal);
      EXPECT_NE(result.error().message.find("position 17"), std::string::npos);
    }
  }
}

// Every stage that owns a buffer, in its most demanding form.
TEST(Sampler, NoAllocationPerToken) {
  const auto logits = make_logits(1, 50'000, 1);
  std::vector<TokenId> history;
  for (std::uint32_t i = 0; i < 600; ++i) history.push_back(TokenId{i % 7});
  const std::vector<std::uint8_t> breaks(600);
  const std::vector<std::uint32_t> mask(50'000 / 32 + 1, 0xFFFF'FFF7u);
  const SamplingParams all{.temperature = 1.3f,
                           .top_k = 20'000,
                           .top_p = 0.9f,
                           .min_p = 0.1f,
                           .repetition_penalty = 1.1f,
                           .frequency_penalty = 0.1f,
                           .presence_penalty = 0.1f,
                           .dry_multiplier = 0.8f,
                           .dynatemp_range = 0.5f,
                           .top_n_sigma = 3.0f,
                           .typical_p = 0.95f,
                           .xtc_probability = 0.5f,
                           .xtc_threshold = 1e-5f,
                           .logit_bias = {{TokenId{3}, 5.0f}}};
  SamplingParams last = all;
  last.order = SamplerOrder::kTemperatureLast;
  for (const SamplingParams& params : {all, last, SamplingParams{.mirostat = 1}, SamplingParams{.mirostat = 2}}) {
    Sampler sampler(params, {.vocab = 50'000, .history_max = 600});
    const std::uint64_t before = base::testing::allocations_count();
    for (std::uint32_t p = 0; p < 5; ++p) {
      const auto id =
          sampler.sample({.logits = logits, .history = {history, 100, breaks}, .position = p, .mask = mask});
      if (!id || token_logprobs(logits, *id, 20).top_count != 20) ADD_FAILURE();
    }
    EXPECT_EQ(base::testing::allocations_count(), before);
    EXPECT_GT(before, 0u);
  }
}

float pick(std::initializer_list<float> values) { return *rc::gen::elementOf(std::vector<float>(values)); }
std::uint32_t pick_count(std::initializer_list<std::uint32_t> values) {
  return *rc::gen::elementOf(std::vector<std::uint32_t>(values));
}

// Every parameter of the chain, most of them off in most cases.
SamplingParams random_params(std::uint32_t vocab) {
  SamplingParams p;
  const auto seldom = [] { return *rc::gen::inRange(0, 3) == 0; };
  p.temperature = pick({0.01f, 0.7f, 1.0f, 1.0f, 2.0f});
  p.order = seldom() ? SamplerOrder::kTemperatureLast : SamplerOrder::kTemperatureFirst;
  if (seldom()) p.dynatemp_range = pick({0.1f, 0.7f, 2.0f});
  p.dynatemp_exponent = pick({1.0f, 0.0f, 0.5f, 3.0f});
  p.min_keep = pick_count({1, 1, 2, 7, 5000});
  p.repetition_penalty = pick({1.0f, 1.0f, 0.0f, 1.3f});
  p.frequency_penalty = pick({0.0f, 0.0f, 0.5f, -2.0f});
  p.presence_penalty = pick({0.0f, 0.0f, 2.0f, -0.3f});
  p.repetition_scope = seldom() ? PenaltyScope::kOutput : PenaltyScope::kAll;
  p.frequency_scope = seldom() ? PenaltyScope::kAll : PenaltyScope::kOutput;
  p.penalty_last_n = pick_count({0, 0, 1, 5, 1000});
  if (seldom()) p.dry_multiplier = pick({0.8f, 10.0f});
  p.dry_base = pick({1.75f, 1.0f, 4.0f});
  p.dry_allowed_length = pick_count({2, 1, 4});
  p.dry_last_n = pick_count({0, 0, 3, 12});
  if (seldom()) {
    p.mirostat = pick_count({1, 2});
    p.mirostat_tau = pick({0.0f, 1.0f, 5.0f, 20.0f});
    p.mirostat_eta = pick({0.0f, 0.1f, 1.0f});
  }
  if (seldom()) p.top_n_sigma = pick({0.1f, 1.0f, 3.0f});
  if (seldom()) p.top_k = *rc::gen::inRange<std::uint32_t>(1, vocab + 1);
  if (seldom()) p.typical_p = pick({0.0f, 0.2f, 0.9f, 0.9999999f});
  if (seldom()) p.top_p = pick({0.0f, 0.5f, 0.95f});
  if (seldom()) p.min_p = pick({0.001f, 0.05f, 1.0f});
  if (seldom()) p.xtc_probability = pick({0.5f, 1.0f});
  p.xtc_threshold = pick({0.1f, 0.0f, 0.001f, 0.5f});
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
    p.logit_bias.push_back({TokenId{*rc::gen::inRange<std::uint32_t>(0, vocab)}, pick({-100.0f, -1.0f, 3.0f, 100.0f})});
  }
  p.choice = *rc::gen::inRange(0u, 3u);
  return p;
}

Request random_request() {
  Request r;
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto size = *rc::gen::inRange<std::uint32_t>(1, 1500);
  r.logits = make_logits(seed, size, *rc::gen::inRange(0, 5));
  r.params = random_params(size);
  r.params.seed = seed;
  // Few different ids, so that there are repeats for DRY to find.
  const auto ids = std::min(size, *rc::gen::inRange<std::uint32_t>(1, 5));
  for (int i = *rc::gen::inRange(0, 40); i > 0; --i) {
    r.history.push_back(TokenId{*rc::gen::inRange<std::uint32_t>(0, ids)});
    r.breaks.push_back(*rc::gen::inRange(0, 12) == 0 ? 1 : 0);
  }
  r.prompt_tokens = *rc::gen::inRange<std::size_t>(0, r.history.size() + 1);
  if (*rc::gen::inRange(0, 2) == 0) r.breaks.clear();
  if (*rc::gen::inRange(0, 3) == 0) {
    r.mask.resize((size + 31) / 32);
    for (auto& word : r.mask) word = *rc::gen::arbitrary<std::uint32_t>();
    r.mask[0] |= 1;
  }
  return r;
}

// The whole chain in the order of sampler.h gives what its naive definition gives, bit for bit.
TEST(Sampler, TheWholeChainEqualsTheNaiveDefinition) {
  EXPECT_TRUE(rc::check("chain == naive", [] {
    Request r = random_request();
    Sampler sampler(r.params, sizes_of(r));
    NaiveChain naive(r.params);
    for (r.position = 0; r.position < 6; ++r.position) {
      RC_ASSERT(index(sampler.sample(input_of(r)).value()) == index(naive.sample(r)));
    }
  }));
}

// A sampler that starts over with the same history draws the same, mirostat included.
TEST(Sampler, AReplayDrawsTheSame) {
  EXPECT_TRUE(rc::check("replay", [] {
    Request r = random_request();
    std::vector<std::uint32_t> first, again;
    for (auto* ids : {&first, &again}) {
      Sampler sampler(r.params, sizes_of(r));
      for (r.position = 0; r.position < 10; ++r.position) ids->push_back(index(sampler.sample(input_of(r)).value()));
    }
    RC_ASSERT(first == again);
  }));
}

// A permutation of the ids permutes the draws, as long as no two logits are equal; equal ones go to the lowest id.
TEST(Sampler, IdsMatterForTiesOnly) {
  const SamplingParams params{.temperature = 1.2f, .top_k = 50, .top_p = 0.9f, .typical_p = 0.9f, .seed = 11};
  const auto logits = make_logits(77, 997, 0);
  const auto permuted_at = [](std::size_t i) { return i * 31 % 997; };
  std::vector<float> permuted(997);
  for (std::size_t i = 0; i < 997; ++i) permuted[permuted_at(i)] = logits[i];
  for (std::uint32_t p = 0; p < 50; ++p) {
    EXPECT_EQ(permuted_at(index(sample({params, logits, {}, p}))), index(sample({params, permuted, {}, p})));
  }
  const std::vector<float> ties(300, 1.0f);
  for (std::uint32_t p = 0; p < 20; ++p) EXPECT_LT(index(sample({{.top_k = 5, .seed = 1}, ties, {}, p})), 5u);
}

std::vector<bool> ever_drawn(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<bool> out(logits.size());
  for (std::uint32_t p = 0; p < 600; ++p) out[index(sample({params, logits, {}, p}))] = true;
  return out;
}
using Set = std::vector<bool>;

// Temperature stands before the cuts unless the request says otherwise. Weights 1, 1/2, 1/4, 1/8; at
// temperature 2 they are 1, 0.71, 0.5, 0.35, of 2.56.
TEST(Sampler, TheOrderOfTheChainMatters) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits{0, -ln2, -2 * ln2, -3 * ln2};
  SamplingParams p{.temperature = 2.0f, .top_p = 0.6f};
  EXPECT_EQ(ever_drawn(p, logits), (Set{true, true, false, false}));  // 0.39 < 0.6 <= 0.67
  p.top_p = 0.7f;
  EXPECT_EQ(ever_drawn(p, logits), (Set{true, true, true, false}));  // 0.67 < 0.7
  p.order = SamplerOrder::kTemperatureLast;
  EXPECT_EQ(ever_drawn(p, logits), (Set{true, true, false, false}));  // 0.53 < 0.7 <= 0.8
  // top_p counts what top_k left; min_p what both left. Two of them have 0.67 and 0.33.
  EXPECT_EQ(ever_drawn({.top_k = 2, .top_p = 0.6f}, logits), (Set{true, false, false, false}));
  // The mask comes before the penalties and the cuts: what it forbids has no share in the mass.
  const Request masked{.params = {.top_p = 0.5f}, .logits = logits, .mask = {0b1110}};
  EXPECT_EQ(index(sample(masked)), 1u);  // 4/7 of the rest
  // A bias comes before the mask: it brings nothing back.
  const Request biased{
      .params = {.temperature = 0, .logit_bias = {{TokenId{0}, 100.0f}}}, .logits = logits, .mask = {0b1110}};
  EXPECT_EQ(index(sample(biased)), 1u);
}

TEST(Sampler, XtcThrowsItsOwnCoin) {
  const std::vector<float> logits{1.0f, 1.0f, 0.0f, -1.0f};  // p 0.39, 0.39, 0.14, 0.05
  SamplingParams p{.xtc_probability = 1.0f, .xtc_threshold = 0.1f, .seed = 5};
  EXPECT_EQ(ever_drawn(p, logits), (Set{false, false, true, true}));
  p.min_keep = 3;
  EXPECT_EQ(ever_drawn(p, logits), (Set{true, true, true, true}));
  p.min_keep = 1;
  p.xtc_probability = 0.5f;
  int excluded = 0;
  for (std::uint32_t at = 0; at < 4000; ++at) excluded += index(sample({p, logits, {}, at})) >= 2 ? 1 : 0;
  EXPECT_NEAR(excluded / 4000.0, 0.5 + 0.5 * 0.19, 0.03);
}

TEST(Sampler, MirostatHoldsTheSurpriseNearItsTarget) {
  std::vector<float> logits(2000);  // Zipf: an entropy of 8 bits
  for (std::size_t i = 0; i < 2000; ++i) logits[i] = -1.1f * std::log(static_cast<float>(i + 1));
  double sum_w = 0;
  for (const float l : logits) sum_w += std::exp(static_cast<double>(l));
  for (const std::uint32_t version : {1u, 2u}) {
    for (const float tau : {4.0f, 6.0f}) {
      Sampler sampler({.mirostat = version, .mirostat_tau = tau, .seed = 9}, {.vocab = 2000});
      double surprise = 0;
      constexpr int kDraws = 4000;
      for (std::uint32_t p = 0; p < kDraws; ++p) {
        const TokenId id = sampler.sample({.logits = logits, .position = p}).value();
        surprise += std::log2(sum_w) - logits[index(id)] / std::log(2.0);
      }
      EXPECT_NEAR(surprise / kDraws, tau, 0.1) << "version " << version;
    }
  }
}

TEST(Sampler, AMaskThatAllowsNothingIsAnError) {
  const std::vector<float> logits(40, 1.0f);
  const std::vector<std::uint32_t> nothing{0, 0xFFFFFF00};  // bits beyond the vocabulary do not count
  for (const float temperature : {0.0f, 1.0f}) {
    const auto result =
        Sampler({.temperature = temperature}, {.vocab = 40}).sample({.logits = logits, .position = 3, .mask = nothing});
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, base::ErrorCode::kInternal);
    EXPECT_EQ(std::get<std::string>(result.error().details.at(0).second), "NO_TOKEN_ALLOWED");
  }
}

TEST(Sampler, ExtremesStayDefined) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> extreme{kMax, -kMax, 0.0f, kMax, 1e-40f};
  const std::vector<TokenId> history{TokenId{0}, TokenId{0}, TokenId{0}, TokenId{0}};
  for (SamplingParams p :
       {SamplingParams{}, SamplingParams{.repetition_penalty = 1e-40f},
        SamplingParams{.dry_multiplier = 10, .dry_base = 4}, SamplingParams{.dynatemp_range = 1},
        SamplingParams{.top_n_sigma = 1}, SamplingParams{.typical_p = 0}, SamplingParams{.mirostat = 1},
        SamplingParams{.mirostat = 2, .mirostat_tau = 0, .mirostat_eta = 1}}) {
    EXPECT_EQ(index(sample({p, {-5.0f}, {}, 0})), 0u);  // a vocabulary of one
    p.logit_bias = {{TokenId{3}, 100.0f}};
    EXPECT_EQ(index(sample({p, extreme, history, 1})), index(naive_sample({p, extreme, history, 1})));
  }
  // Masked tokens stay masked through every step.
  const SamplingParams all{.repetition_penalty = 0.0f, .presence_penalty = -2.0f, .dry_multiplier = 1};
  Request r{.params = all, .logits = extreme, .history = history, .mask = {0b00110}};
  for (r.position = 0; r.position < 50; ++r.position) EXPECT_EQ(index(sample(r)), 2u);
}

}  // namespace
}  // namespace llorch::engine::sampling
