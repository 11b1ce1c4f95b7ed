// Each cut against its formula in float64. Where a boundary falls within rounding of a candidate either side is right,
// so the range that a slightly smaller and a slightly larger parameter leave brackets the answer.
#include "engine/sampling/truncation/truncation.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"

namespace llorch::engine::sampling::truncation {
namespace {

constexpr double kEps = 1e-5;

struct Range {
  std::size_t first, last;
};

class Case {
 public:
  Case() : Case(*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::inRange<std::size_t>(1, 400)) {}
  Case(std::uint64_t seed, std::size_t size) : c_(size), x_(size) {
    const float spread = 20.0f * base::philox_uniform(seed, {.purpose = base::PhiloxPurpose::kTestWeights});
    for (std::size_t i = 0; i < size; ++i) {
      x_[i] = -spread * base::philox_uniform(seed, {.position = static_cast<std::uint32_t>(i + 1),
                                                    .purpose = base::PhiloxPurpose::kTestWeights});
    }
    x_[size / 3] = 0.0f;
    c_.collect(x_, {.l_max = 0, .divisor = 1, .x_min = -20.0f});
    std::sort(x_.rbegin(), x_.rend());
    double sum = 0;
    for (const float x : x_) sum += std::exp(static_cast<double>(x));
    for (const float x : x_) p_.push_back(std::exp(static_cast<double>(x)) / sum);
  }

  Candidates& candidates() { return c_; }
  double x(std::size_t i) const { return x_[i]; }
  double p(std::size_t i) const { return p_[i]; }
  std::size_t size() const { return x_.size(); }
  // Which candidates are left: the range is told by its x and its count.
  Range left() {
    const float first = c_.x(0);
    const auto at =
        static_cast<std::size_t>(std::lower_bound(x_.begin(), x_.end(), first, std::greater<>()) - x_.begin());
    return {at, at + c_.count()};
  }

 private:
  Candidates c_;
  std::vector<float> x_;
  std::vector<double> p_;
};

float fraction() { return static_cast<float>(*rc::gen::inRange(0, 1001)) / 1000.0f; }
std::size_t some_min_keep() { return *rc::gen::element<std::size_t>(1, 1, 3, 50, 1000); }
std::size_t at_least(const Case& c, std::size_t n, std::size_t min_keep) {
  return std::min(c.size(), std::max({n, min_keep, std::size_t{1}}));
}

TEST(Cuts, TopNSigmaKeepsWhatIsNearTheBest) {
  EXPECT_TRUE(rc::check("top_n_sigma", [] {
    Case c;
    const float x_min = -20.0f * fraction();
    const auto min_keep = some_min_keep();
    std::size_t n = 0;
    while (n < c.size() && c.x(n) >= x_min) ++n;
    top_n_sigma(c.candidates(), x_min, min_keep);
    const Range left = c.left();
    RC_ASSERT(left.first == 0u);
    RC_ASSERT(left.last == at_least(c, n, min_keep));
  }));
}

TEST(Cuts, TopKKeepsK) {
  EXPECT_TRUE(rc::check("top_k", [] {
    Case c;
    const auto k = *rc::gen::inRange<std::size_t>(1, 500);
    top_k(c.candidates(), k);
    RC_ASSERT(c.left().first == 0u);
    RC_ASSERT(c.left().last == std::min(k, c.size()));
  }));
}

TEST(Cuts, TopPKeepsTheShortestPrefixWithTheMass) {
  EXPECT_TRUE(rc::check("top_p", [] {
    Case c;
    const float mass = fraction();
    const auto min_keep = some_min_keep();
    const auto prefix = [&](double wanted) {
      double sum = 0;
      std::size_t n = 0;
      while (n < c.size() && (n == 0 || sum < wanted)) sum += c.p(n++);
      return at_least(c, n, min_keep);
    };
    top_p(c.candidates(), mass, min_keep);
    RC_ASSERT(c.left().first == 0u);
    RC_ASSERT(c.left().last >= prefix(mass - kEps));
    RC_ASSERT(c.left().last <= prefix(mass + kEps));
  }));
}

TEST(Cuts, MinPKeepsWhatIsLikelyEnough) {
  EXPECT_TRUE(rc::check("min_p", [] {
    Case c;
    const float ratio = fraction();
    const auto min_keep = some_min_keep();
    const auto prefix = [&](double wanted) {
      std::size_t n = 0;
      while (n < c.size() && c.p(n) >= wanted * c.p(0)) ++n;
      return at_least(c, n, min_keep);
    };
    min_p(c.candidates(), ratio, min_keep);
    RC_ASSERT(c.left().first == 0u);
    RC_ASSERT(c.left().last <= prefix(ratio - kEps));
    RC_ASSERT(c.left().last >= prefix(ratio + kEps));
  }));
}

TEST(Cuts, TypicalKeepsWhatIsNearestToTheEntropy) {
  EXPECT_TRUE(rc::check("typical", [] {
    Case c;
    const float mass = 0.999f * fraction();
    const auto min_keep = some_min_keep();
    double entropy = 0;
    for (std::size_t i = 0; i < c.size(); ++i) entropy -= c.p(i) * std::log(c.p(i));
    const auto distance = [&](std::size_t i) { return std::abs(-std::log(c.p(i)) - entropy); };
    typical(c.candidates(), mass, min_keep);
    const Range left = c.left();
    const std::size_t count = left.last - left.first;
    double sum = 0, furthest = 0, nearest_out = 1e9, furthest_p = 1;
    for (std::size_t i = 0; i < c.size(); ++i) {
      if (i >= left.first && i < left.last) {
        sum += c.p(i);
        if (distance(i) > furthest) furthest_p = c.p(i);
        furthest = std::max(furthest, distance(i));
      } else {
        nearest_out = std::min(nearest_out, distance(i));
      }
    }
    RC_ASSERT(furthest <= nearest_out + 1e-4);
    RC_ASSERT(sum >= mass - kEps);
    RC_ASSERT(count >= std::min(min_keep, c.size()));
    // Not one more than needed. The furthest two may be as near as rounding.
    RC_ASSERT(count <= std::max<std::size_t>(min_keep, 1) || sum - furthest_p < mass + 2 * kEps + 1e-3 * furthest_p);
  }));
}

TEST(Cuts, XtcKeepsTheLeastOfTheLikely) {
  EXPECT_TRUE(rc::check("xtc", [] {
    Case c;
    const float threshold = 0.5f * fraction();
    const auto min_keep = some_min_keep();
    const auto dropped = [&](double wanted) -> std::size_t {
      std::size_t n = 0;
      while (n < c.size() && c.p(n) >= wanted) ++n;
      return n >= 2 && c.size() - (n - 1) >= min_keep ? n - 1 : 0;
    };
    xtc(c.candidates(), threshold, min_keep);
    const auto low = dropped(threshold + kEps * threshold), high = dropped(threshold - kEps * threshold);
    RC_ASSERT(c.left().first == low || c.left().first == high || (c.left().first >= low && c.left().first <= high));
    RC_ASSERT(c.left().last == c.size());
  }));
}

TEST(Cuts, DynamicTemperatureFollowsTheEntropy) {
  EXPECT_TRUE(rc::check("dynamic temperature", [] {
    Case c;
    const DynamicTemperature t{
        .temperature = 2.0f * fraction(), .range = 2.0f * fraction(), .exponent = 4.0f * fraction()};
    double entropy = 0;
    for (std::size_t i = 0; i < c.size(); ++i) entropy -= c.p(i) * std::log(c.p(i));
    const double low = std::max(0.0f, t.temperature - t.range), high = t.temperature + t.range;
    const double ratio = c.size() < 2 ? 0 : std::clamp(entropy / std::log(c.size()), 0.0, 1.0);
    const float sum_w = c.candidates().total();
    const float got = dynamic_temperature(t, {.sum_w = sum_w, .sum_wx = c.candidates().total_wx(), .count = c.size()});
    RC_ASSERT(got >= low - 1e-6 && got <= high + 1e-6);
    // A small exponent of a small ratio magnifies the ratio's error.
    if (ratio > 0.01) RC_ASSERT(std::abs(got - (low + (high - low) * std::pow(ratio, t.exponent))) < 1e-3);
  }));
  EXPECT_EQ(dynamic_temperature({.temperature = 1, .range = 0.5f, .exponent = 0}, {}), 1.5f);
  EXPECT_EQ(dynamic_temperature({.temperature = 1, .range = 0.5f, .exponent = 2}, {}), 0.5f);
  EXPECT_EQ(dynamic_temperature({.temperature = 1, .range = 2, .exponent = 2}, {}), 0.0f);
}

}  // namespace
}  // namespace llorch::engine::sampling::truncation
