#include <cmath>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::simd {
namespace {

using testing::bits_of;
using testing::isas;

// Distance in units of the last place of `exact`.
double ulps(float actual, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::fabs(static_cast<double>(actual) - exact) / unit;
}

// Every `stride`-th binary32 from low to high, both bit patterns of the same sign.
std::vector<float> between_bits(float low, float high, std::uint32_t stride) {
  std::vector<float> values;
  for (std::uint32_t b = bits_of(low); b <= bits_of(high); b += stride) values.push_back(std::bit_cast<float>(b));
  return values;
}

std::vector<float> both_signs(std::vector<float> values) {
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) values.push_back(-values[i]);
  return values;
}

const std::vector<float> kSpecials = {0.0f,       -0.0f,      0x1p-149f, -0x1p-149f, 88.72283f, 88.72284f, 88.8f,
                                      -87.33654f, -87.33655f, -87.4f,    1000.0f,    -1000.0f,  INFINITY,  -INFINITY};

TEST(ExpLanes, EqualsTheScalarTwinAndIsWithinTwoUlps) {
  std::vector<float> x = both_signs(between_bits(0x1p-30f, 90.0f, 1009));
  x.insert(x.end(), kSpecials.begin(), kSpecials.end());
  for (host::Isa isa : isas()) {
    std::vector<float> y(x.size());
    kernels(isa).exp_array(x.data(), y.data(), x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bits_of(y[i]), bits_of(reference::exp_exact(x[i]))) << host::isa_name(isa) << " x=" << x[i];
      if (x[i] >= -87.3365f && x[i] <= 88.7228f)
        worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
    }
    EXPECT_LE(worst, 2.0);
    EXPECT_GT(worst, 0.5);  // a comparison with itself would show 0
    float nan = NAN;
    kernels(isa).exp_array(&nan, &nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  }
}

TEST(TanhLanes, EqualsTheScalarTwinAndIsWithinFourUlps) {
  std::vector<float> x = both_signs(between_bits(0x1p-40f, 100.0f, 1009));
  x.insert(x.end(), kSpecials.begin(), kSpecials.end());
  for (host::Isa isa : isas()) {
    std::vector<float> y(x.size());
    kernels(isa).tanh_array(x.data(), y.data(), x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bits_of(y[i]), bits_of(reference::tanh_exact(x[i]))) << host::isa_name(isa) << " x=" << x[i];
      if (std::fabs(x[i]) > 0x1p-41f) worst = std::max(worst, ulps(y[i], std::tanh(static_cast<double>(x[i]))));
    }
    EXPECT_LE(worst, 4.0);
  }
}

TEST(ErfLanes, EqualsTheScalarTwinAndIsWithinTwoUlps) {
  std::vector<float> x = both_signs(between_bits(0x1p-40f, 100.0f, 1009));
  const auto around_one = between_bits(0.999f, 1.001f, 1);  // where the formulas meet
  x.insert(x.end(), around_one.begin(), around_one.end());
  x.insert(x.end(), kSpecials.begin(), kSpecials.end());
  for (host::Isa isa : isas()) {
    std::vector<float> y(x.size());
    kernels(isa).erf_array(x.data(), y.data(), x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bits_of(y[i]), bits_of(reference::erf_exact(x[i]))) << host::isa_name(isa) << " x=" << x[i];
      if (std::fabs(x[i]) > 0x1p-41f) worst = std::max(worst, ulps(y[i], std::erf(static_cast<double>(x[i]))));
    }
    EXPECT_LE(worst, 2.0);
    EXPECT_GT(worst, 0.5);
    float nan = NAN;
    kernels(isa).erf_array(&nan, &nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  }
}

TEST(SincosLanes, EqualsTheScalarTwinAndIsWithinTwoUlpsOfOne) {
  testing::Random random(1);
  SCOPED_TRACE(random.note());
  std::vector<float> x = both_signs(between_bits(0x1p-30f, 0x1p20f, 1009));
  x.insert(x.end(), {0.0f, -0.0f});
  for (int i = 0; i < 200000; ++i)  // what rotations ask for
    x.push_back(static_cast<float>(random.below(1 << 20)) * std::pow(10000.0f, -random.uniform(0, 1)));
  for (int n = 1; n < 600000; n += 7) x.push_back(static_cast<float>(n * 1.5707963267948966));  // near the zeros
  for (host::Isa isa : isas()) {
    std::vector<float> s(x.size()), c(x.size());
    kernels(isa).sincos_array(x.data(), s.data(), c.data(), x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      float s0 = 0, c0 = 0;
      reference::sincos_exact(x[i], s0, c0);
      ASSERT_EQ(bits_of(s[i]), bits_of(s0)) << host::isa_name(isa) << " x=" << x[i];
      ASSERT_EQ(bits_of(c[i]), bits_of(c0)) << host::isa_name(isa) << " x=" << x[i];
      const double exact = x[i];
      worst = std::max({worst, std::fabs(s[i] - std::sin(exact)), std::fabs(c[i] - std::cos(exact))});
    }
    EXPECT_LE(worst, 0x1p-23);
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::simd
