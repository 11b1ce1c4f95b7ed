#include "engine/sampling/truncation/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/philox.h"
#include "engine/sampling/math/exp.h"

namespace llorch::engine::sampling::truncation {
namespace {

std::vector<float> row(std::size_t size) {
  std::vector<float> l(size);
  for (std::size_t i = 0; i < size; ++i) {
    const float u = base::philox_uniform(
        5, {.position = static_cast<std::uint32_t>(i), .purpose = base::PhiloxPurpose::kTestWeights});
    l[i] = std::floor(u * 200.0f) * -0.1f;  // many ties
  }
  l[size / 2] = 0.0f;
  return l;
}

std::vector<std::uint32_t> sorted_ids(const std::vector<float>& l, float x_min) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < l.size(); ++i) {
    if (l[i] >= x_min) ids.push_back(i);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return l[a] > l[b]; });
  return ids;
}

// However it is read and cut, the order is (x desc, id asc).
TEST(Candidates, LazyOrderIsTheFullOrder) {
  const auto l = row(5000);
  const auto ids = sorted_ids(l, -15.0f);
  Candidates c(l.size());
  for (const std::size_t read_first : {0u, 10u, 255u, 256u, 1000u, 3000u}) {
    for (const std::size_t keep : {1u, 200u, 256u, 257u, 2999u, 3500u}) {
      c.collect(l, {.l_max = 0, .divisor = 1, .x_min = -15.0f});
      ASSERT_EQ(c.count(), ids.size());
      EXPECT_EQ(index(c.id(read_first)), ids[read_first]);
      EXPECT_EQ(c.count_from(-3.0f), sorted_ids(l, -3.0f).size());
      c.keep_first(keep);
      ASSERT_EQ(c.count(), keep);
      const std::size_t drop = keep / 3;
      c.drop_first(drop);
      for (std::size_t i = 0; i < c.count(); ++i) {
        ASSERT_EQ(index(c.id(i)), ids[drop + i]) << read_first << ' ' << keep << ' ' << i;
        ASSERT_EQ(c.x(i), l[ids[drop + i]]);
      }
    }
  }
}

// The walk's early stop leaves out only what adds nothing.
TEST(Candidates, SumsAreThoseOfTheWholeWalk) {
  auto l = row(3000);
  for (std::size_t i = 0; i < l.size(); i += 3) l[i] -= 3.5f;
  const auto ids = sorted_ids(l, -17.0f);
  const auto naive = [&](std::size_t from, std::size_t to) {
    float sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += math::exp_s1(l[ids[i]]);
    return sum;
  };
  Candidates c(l.size());
  c.collect(l, {.l_max = 0, .divisor = 1, .x_min = -17.0f});
  EXPECT_EQ(c.total(), naive(0, ids.size()));
  const std::size_t n = c.prefix_reaching(0.5f * c.total());
  EXPECT_GE(naive(0, n), 0.5f * c.total());
  EXPECT_LT(naive(0, n - 1), 0.5f * c.total());
  const std::size_t i = c.first_exceeding(0.25f * c.total());
  EXPECT_GT(naive(0, i + 1), 0.25f * c.total());
  EXPECT_LE(naive(0, i), 0.25f * c.total());
  c.keep_first(2000);
  EXPECT_EQ(c.total(), naive(0, 2000));
  c.drop_first(700);
  EXPECT_EQ(c.total(), naive(700, 2000));
  c.rescale(0.5f);
  EXPECT_EQ(c.weight(0), 1.0f);
  EXPECT_EQ(c.weight(9), math::exp_s1((l[ids[709]] - l[ids[700]]) / 0.5f));
}

}  // namespace
}  // namespace llorch::engine::sampling::truncation
