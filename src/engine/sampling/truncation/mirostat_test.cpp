#include "engine/sampling/truncation/mirostat.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"

namespace llorch::engine::sampling::truncation {
namespace {

// Zipf with exponent s: what version 1 assumes.
std::vector<float> zipf(std::size_t size, double s) {
  std::vector<float> l(size);
  for (std::size_t i = 0; i < size; ++i) l[i] = static_cast<float>(-s * std::log(static_cast<double>(i + 1)));
  return l;
}

void collect(Candidates& c, const std::vector<float>& l) {
  c.collect(l, {.l_max = *std::max_element(l.begin(), l.end()), .divisor = 1, .x_min = -17.0f});
}

// The paper's formulas in float64.
TEST(Mirostat, Version1EstimatesTheExponentAndCutsAtK) {
  constexpr std::size_t kVocab = 5000;
  for (const double s : {0.6, 0.999, 1.0, 1.2, 2.5}) {
    for (const float tau : {0.5f, 1.5f, 3.0f, 5.0f}) {
      Candidates c(kVocab);
      collect(c, zipf(kVocab, s));
      const std::size_t all = c.count();
      Mirostat m({.mirostat = 1, .mirostat_tau = tau}, kVocab);
      m.cut(c);
      double k = 1;
      if (std::abs(s - 1) < 1e-9) {
        k = std::exp2(2.0 * tau) / std::log(kVocab);  // the limit for e -> 0
      } else {
        const double e = s - 1;
        k = std::pow(e * std::exp2(2.0 * tau) / (1 - std::pow(kVocab, -e)), 1 / s);
      }
      const double expected = std::clamp(std::floor(k), 1.0, static_cast<double>(all));
      EXPECT_NEAR(static_cast<double>(c.count()), expected, 1 + 0.01 * expected) << s << ' ' << tau;
    }
  }
}

TEST(Mirostat, Version2DropsWhatSurprisesTooMuch) {
  EXPECT_TRUE(rc::check("mirostat 2", [] {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto size = *rc::gen::inRange<std::size_t>(1, 500);
    std::vector<float> l(size);
    for (std::size_t i = 0; i < size; ++i) {
      l[i] = 10.0f * base::philox_uniform(seed, {.position = static_cast<std::uint32_t>(i),
                                                 .purpose = base::PhiloxPurpose::kTestWeights});
    }
    double sum = 0;
    for (const float v : l) sum += std::exp(static_cast<double>(v));
    const float tau = static_cast<float>(*rc::gen::inRange(0, 80)) * 0.1f;
    Mirostat m({.mirostat = 2, .mirostat_tau = tau, .mirostat_eta = 0.25f}, size);
    Candidates c(size);
    const auto kept = [&](double mu) {
      return std::max<std::ptrdiff_t>(
          1, std::count_if(l.begin(), l.end(), [&](float v) { return std::log2(sum) - v / std::log(2.0) <= mu; }));
    };
    double mu = 2.0 * tau;
    for (int step = 0; step < 5; ++step) {
      RC_ASSERT(std::abs(m.mu() - mu) < 1e-3);
      collect(c, l);
      m.cut(c);
      RC_ASSERT(static_cast<std::ptrdiff_t>(c.count()) >= kept(mu - 1e-3));
      RC_ASSERT(static_cast<std::ptrdiff_t>(c.count()) <= kept(mu + 1e-3));
      const std::size_t drawn = c.count() / 2;
      const float l_max = *std::max_element(l.begin(), l.end());
      mu -= 0.25 * ((std::log2(sum) - (c.x(drawn) + l_max) / std::log(2.0)) - tau);
      m.drawn(c.x(drawn));
    }
  }));
}

TEST(Mirostat, FlatAndSingleDistributionsAreDefined) {
  for (const std::uint32_t version : {1u, 2u}) {
    Candidates one(1), flat(1000);
    Mirostat m({.mirostat = version, .mirostat_tau = 3}, 1000);
    collect(one, {2.0f});
    m.cut(one);
    EXPECT_EQ(one.count(), 1u);
    collect(flat, std::vector<float>(1000, 1.0f));
    m.cut(flat);  // 2^mu = 64 < 1000: every token surprises too much
    EXPECT_EQ(flat.count(), 1u);
    Mirostat wide({.mirostat = version, .mirostat_tau = 20}, 1000);
    collect(flat, std::vector<float>(1000, 1.0f));
    wide.cut(flat);
    EXPECT_EQ(flat.count(), 1000u);
  }
}

}  // namespace
}  // namespace llorch::engine::sampling::truncation
