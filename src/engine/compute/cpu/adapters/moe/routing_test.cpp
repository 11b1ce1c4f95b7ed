#include "engine/compute/cpu/adapters/moe/routing.h"

#include <array>
#include <cmath>
#include <limits>

#include "engine/compute/adapter_checks.h"
#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/routing.h"

namespace llorch::engine::compute::cpu::adapters::moe {
namespace {

using plan::GroupScore;
using plan::MoeGate;
using plan::MoeParams;
using testing::isas;
using testing::Random;
using testing::same_bits;

struct Chosen {
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
};

Chosen route(host::Isa isa, const MoeParams& p, std::vector<float> logits, const std::vector<float>& bias = {}) {
  Chosen out{std::vector<std::uint32_t>(p.experts_used), std::vector<float>(p.experts_used)};
  std::vector<float> scores(p.experts, NAN), group_scores(p.groups, NAN), best(std::max(p.experts_used, p.groups), NAN);
  std::vector<std::uint32_t> groups(p.groups);
  route_row(kernels(isa), p, logits.data(), {.selection_bias = bias.empty() ? nullptr : bias.data()},
            {scores.data(), group_scores.data(), best.data(), groups.data()}, {out.experts.data(), out.weights.data()});
  return out;
}

MoeParams params(MoeGate gate, std::uint32_t experts, std::uint32_t used) {
  MoeParams p{};
  p.gate = gate, p.experts = experts, p.experts_used = used, p.weights_scale = 1;
  return p;
}

using Experts = std::vector<std::uint32_t>;

TEST(Routing, TheLargestLogitsWinAndEqualOnesGoToTheLowerNumber) {
  const host::Isa isa = isas().back();
  const MoeParams p = params(MoeGate::kSoftmaxAfterTopk, 6, 3);
  EXPECT_EQ(route(isa, p, {0, 5, 1, 3, 4, 2}).experts, (Experts{1, 3, 4}));
  EXPECT_EQ(route(isa, p, {2, 2, 2, 2, 2, 2}).experts, (Experts{0, 1, 2}));
  EXPECT_EQ(route(isa, p, {1, 2, 1, 2, 1, 2}).experts, (Experts{1, 3, 5}));
  EXPECT_EQ(route(isa, p, {1, 3, 1, 3, 1, 1}).experts, (Experts{0, 1, 3}));
  EXPECT_EQ(route(isa, p, {-1, -1, -2, -3, -3, -3}).experts, (Experts{0, 1, 2}));
}

TEST(Routing, WeightsAreWhatTheFormulaSays) {
  const host::Isa isa = isas().back();
  const std::vector<float> logits = {0, 2, 1, -1};
  const double e[] = {1, std::exp(2.0), std::exp(1.0), std::exp(-1.0)};
  const double all = e[0] + e[1] + e[2] + e[3];
  const auto expect = [&](const MoeParams& p, std::initializer_list<double> weights) {
    const Chosen chosen = route(isa, p, logits);
    ASSERT_EQ(chosen.experts, (Experts{1, 2}));
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(chosen.weights[i], weights.begin()[i], 1e-6) << i;
  };
  MoeParams p = params(MoeGate::kSoftmax, 4, 2);
  expect(p, {e[1] / all, e[2] / all});
  p.norm_topk = 1;
  expect(p, {e[1] / (e[1] + e[2]), e[2] / (e[1] + e[2])});
  p.norm_epsilon = 0.5f, p.weights_scale = 2.5f;
  const double sum = (e[1] + e[2]) / all + 0.5;
  expect(p, {2.5 * e[1] / all / sum, 2.5 * e[2] / all / sum});
  p = params(MoeGate::kSigmoid, 4, 2);
  expect(p, {1 / (1 + std::exp(-2.0)), 1 / (1 + std::exp(-1.0))});
  p = params(MoeGate::kSoftmaxAfterTopk, 4, 2);
  expect(p, {e[1] / (e[1] + e[2]), e[2] / (e[1] + e[2])});
}

// The first expert is weighed among those near it, the second among those near it that are left.
TEST(Routing, ExpertsAreMixedInTurn) {
  MoeParams p = params(MoeGate::kSparseMixer, 5, 2);
  p.reach = 0.25f;
  const auto expect = [&](const std::vector<float>& logits, const Experts& experts, double first, double second) {
    for (const host::Isa isa : isas()) {
      const Chosen chosen = route(isa, p, logits);
      ASSERT_EQ(chosen.experts, experts);
      EXPECT_NEAR(chosen.weights[0], first, 1e-6);
      EXPECT_NEAR(chosen.weights[1], second, 1e-6);
    }
  };
  const double e = std::exp(1.0), root = std::exp(0.5);
  // 4 is near 3.5 and 3; of the others 3.5 is near 3 alone.
  expect({3, 4, 0, 3.5f, -4}, {1, 3}, 1 / (1 + 1 / root + 1 / e), 1 / (1 + 1 / root));
  // Nothing is near the first, and the second is alone.
  expect({8, 4, 0, -1, -4}, {0, 1}, 1, 1);
  // All below 0: what counts is the size of the smaller one.
  expect({-1, -1.25f, -9, -9, -9}, {0, 1}, 1 / (1 + std::exp(-0.25)), 1);
  // Equal ones: the lower number first.
  expect({2, 2, 2, 2, 2}, {0, 1}, 0.2, 0.25);
  expect({0, 0, 0, 0, 0}, {0, 1}, 0.2, 0.25);
}

TEST(Routing, TheSelectionBiasChoosesAndDoesNotWeigh) {
  const MoeParams p = params(MoeGate::kSigmoid, 4, 1);
  const Chosen chosen = route(isas().back(), p, {0, 3, 0, 0}, {0, 0, 0, 0.75f});
  EXPECT_EQ(chosen.experts, Experts{3});
  EXPECT_NEAR(chosen.weights[0], 0.5, 1e-7);
}

TEST(Routing, OnlyTheBestGroupsTakePart) {
  const host::Isa isa = isas().back();
  MoeParams p = params(MoeGate::kSoftmaxAfterTopk, 6, 2);
  p.groups = 3, p.groups_used = 1;
  const std::vector<float> logits = {9, 0, 6, 5, 0, 8};  // sums 9, 11, 8; maxima 9, 6, 8
  p.group_score = GroupScore::kTop2Sum;
  EXPECT_EQ(route(isa, p, logits).experts, (Experts{2, 3}));
  p.group_score = GroupScore::kMax;
  EXPECT_EQ(route(isa, p, logits).experts, (Experts{0, 1}));
  p.groups_used = 2;
  EXPECT_EQ(route(isa, p, logits).experts, (Experts{0, 5}));
  // A group left out stays out, though all of the others are negative.
  p.group_score = GroupScore::kTop2Sum, p.groups_used = 1;
  EXPECT_EQ(route(isa, p, {-1, -2, 0, -9, -1, -1}).experts, (Experts{4, 5}));
  EXPECT_EQ(route(isa, p, {1, 1, 1, 1, 1, 1}).experts, (Experts{0, 1}));  // equal groups: the lower
}

TEST(Routing, ARowOfNanStillGoesToExpertsThatExist) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  MoeParams p = params(MoeGate::kSoftmax, 8, 3);
  p.groups = 4, p.groups_used = 2;
  for (host::Isa isa : isas()) {
    const Chosen chosen = route(isa, p, std::vector<float>(8, nan));
    EXPECT_TRUE(chosen.experts[0] < chosen.experts[1] && chosen.experts[1] < chosen.experts[2]);
    EXPECT_LT(chosen.experts[2], 8u);
    for (float w : chosen.weights) EXPECT_TRUE(std::isnan(w));
  }
}

TEST(Routing, EqualsItsTwin) {
  Random random(60);
  SCOPED_TRACE(random.note());
  for (int i = 0; i < 2000; ++i) {
    MoeParams p{};
    p.gate = std::array{MoeGate::kSoftmax, MoeGate::kSigmoid, MoeGate::kSoftmaxAfterTopk, MoeGate::kSqrtSoftplus,
                        MoeGate::kSparseMixer}[random.below(5)];
    const bool in_turn = p.gate == MoeGate::kSparseMixer;
    p.reach = in_turn ? random.uniform(0, 1) : 0;
    const auto size = static_cast<std::uint32_t>(random.between(2, 9));
    p.groups = in_turn || random.below(2) == 0 ? 0 : static_cast<std::uint32_t>(random.between(1, 8));
    p.experts = size * std::max(p.groups, 1u);
    p.groups_used = p.groups != 0 ? static_cast<std::uint32_t>(random.between(1, p.groups)) : 0;
    p.group_score = random.below(2) == 0 ? GroupScore::kTop2Sum : GroupScore::kMax;
    p.experts_used = static_cast<std::uint32_t>(random.between(1, size * std::max(p.groups_used, 1u)));
    p.norm_topk = random.below(2) == 0, p.norm_epsilon = 1e-20f, p.weights_scale = random.uniform(0.5f, 3);
    ASSERT_TRUE(routable(p));
    std::vector<float> logits = random.normals(p.experts), bias;
    if (random.below(2) == 0)
      for (float& logit : logits) logit = std::nearbyint(logit);  // many equal ones
    if (!in_turn && random.below(2) == 0) bias = random.normals(p.experts);
    const auto expected = reference::route_exact(logits, bias, p);
    for (host::Isa isa : isas()) {
      const Chosen chosen = route(isa, p, logits, bias);
      ASSERT_EQ(chosen.experts, expected.experts) << i;
      ASSERT_TRUE(same_bits(chosen.weights, expected.weights)) << i;
    }
  }
}

TEST(Routing, NumbersThatDoNotFitAreSeen) {
  MoeParams p = params(MoeGate::kSoftmax, 8, 2);
  EXPECT_TRUE(routable(p));
  const auto with = [&](auto change) {
    MoeParams changed = p;
    change(changed);
    return routable(changed);
  };
  EXPECT_FALSE(with([](MoeParams& m) { m.gate = MoeGate{0}; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.gate = MoeGate{6}; }));
  EXPECT_TRUE(with([](MoeParams& m) { m.gate = MoeGate::kSparseMixer; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.gate = MoeGate::kSparseMixer, m.groups = m.groups_used = 2; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.gate = MoeGate::kSparseMixer, m.has_selection_bias = 1; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.gate = MoeGate::kSparseMixer, m.reach = NAN; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.experts_used = 0; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.experts_used = 9; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.groups = 3, m.groups_used = 1; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.groups = 4, m.groups_used = 0; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.groups = 4, m.groups_used = 5; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.groups = 8, m.groups_used = 4; }));  // top 2 of one
  EXPECT_TRUE(with([](MoeParams& m) { m.groups = 8, m.groups_used = 4, m.group_score = GroupScore::kMax; }));
  EXPECT_FALSE(with([](MoeParams& m) { m.groups = 4, m.groups_used = 1, m.experts_used = 3; }));
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::moe
