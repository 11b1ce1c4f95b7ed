#include <cmath>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/mixers.h"

namespace llorch::engine::compute::cpu::simd {
namespace {

using testing::bits_of;
using testing::isas;
using testing::Random;
using testing::same_bits;

TEST(SoftplusLanes, EqualsTheScalarTwinAndIsWithinFourUlps) {
  std::vector<float> x{0.0f,     -0.0f,    20.0f,    std::nextafter(20.0f, 21.0f), -87.0f, -88.0f, 1000.0f,
                       -1000.0f, INFINITY, -INFINITY};
  for (std::uint32_t bits = bits_of(0x1p-30f); bits <= bits_of(90.0f); bits += 997)
    x.push_back(std::bit_cast<float>(bits)), x.push_back(-x.back());
  for (host::Isa isa : isas()) {
    std::vector<float> y(x.size());
    kernels(isa).softplus_array(x.data(), y.data(), x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bits_of(y[i]), bits_of(reference::softplus_exact(x[i]))) << host::isa_name(isa) << " x=" << x[i];
      if (x[i] < -87.3365f || std::isinf(x[i])) continue;
      const double exact = x[i] > 20.0f ? static_cast<double>(x[i]) : std::log1p(std::exp(static_cast<double>(x[i])));
      const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
      worst = std::max(worst, std::fabs(y[i] - exact) / unit);
    }
    EXPECT_LE(worst, 4.0);
    EXPECT_GT(worst, 0.5);  // a comparison with itself would show 0
    EXPECT_EQ(y[8], INFINITY);
    EXPECT_EQ(y[9], 0.0f);
    float nan = NAN;
    kernels(isa).softplus_array(&nan, &nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  }
}

TEST(SsmStep, ClampsAndKeepsNan) {
  Random random(66);
  SCOPED_TRACE(random.note());
  for (std::size_t heads : {1, 15, 16, 33}) {
    auto dt = random.normals(2 * heads);
    const auto bias = random.normals(heads), a = random.normals(heads);
    dt[0] = NAN, dt[heads - 1] = 300.0f;
    for (host::Isa isa : isas()) {
      std::vector<float> delta(2 * heads), decay(2 * heads);
      kernels(isa).ssm_step({.dt = dt.data(),
                             .dt_stride = heads,
                             .bias = bias.data(),
                             .a = a.data(),
                             .dt_min = 0.2f,
                             .dt_max = 1.5f,
                             .delta = delta.data(),
                             .decay = decay.data(),
                             .heads = heads},
                            {0, 2});
      for (std::size_t i = 0; i < 2 * heads; ++i) {
        if (std::isnan(dt[i])) {
          EXPECT_TRUE(std::isnan(delta[i]) && std::isnan(decay[i]));
          continue;
        }
        const auto expected = reference::ssm_step_exact(
            {.dt = dt[i], .bias = bias[i % heads], .a = a[i % heads], .dt_min = 0.2f, .dt_max = 1.5f});
        EXPECT_EQ(bits_of(delta[i]), bits_of(expected.delta)) << i;
        EXPECT_EQ(bits_of(decay[i]), bits_of(expected.decay)) << i;
      }
    }
  }
}

TEST(SsmScan, EqualsTheWrittenOrderOnEveryStateWidth) {
  Random random(67);
  constexpr std::size_t kHeads = 4, kHeadDim = 3, kRows = 6;
  for (std::size_t width = 1; width <= 70; ++width) {
    SCOPED_TRACE(::testing::Message() << "width " << width << " " << random.note());
    const std::size_t stride = kHeads * kHeadDim + 4 * width;  // x, then b and c of two groups
    const auto x = random.hostiles(kRows * stride), delta = random.normals(kRows * kHeads),
               skip = random.normals(kHeads);
    auto decay = random.normals(kRows * kHeads);
    for (float& d : decay) d = std::fabs(d) / (1 + std::fabs(d));
    const std::vector<std::uint32_t> offsets{0, 2, kRows}, sequences{3, 1};
    std::vector<float> expected;
    for (std::size_t span = 0; span < 2; ++span) {
      std::vector<reference::SsmHead> heads(kHeads, reference::SsmHead(kHeadDim, width));
      for (std::size_t r = offsets[span]; r < offsets[span + 1]; ++r)
        for (std::size_t h = 0; h < kHeads; ++h) {
          const auto row = std::span(x).subspan(r * stride, stride);
          const auto y = heads[h].next_exact(
              row.subspan(h * kHeadDim, kHeadDim), row.subspan(12 + h / 2 * width, width),
              row.subspan(12 + (2 + h / 2) * width, width), {delta[r * kHeads + h], decay[r * kHeads + h]}, skip[h]);
          expected.insert(expected.end(), y.begin(), y.end());
        }
    }
    for (host::Isa isa : isas()) {
      std::vector<float> state(4 * kHeads * kHeadDim * width), y(kRows * kHeads * kHeadDim);
      const SsmScanArgs args{.spans = {offsets.data(), sequences.data(), 2},
                             .state = {reinterpret_cast<std::byte*>(state.data()), kHeads * kHeadDim * width * 4},
                             .x = x.data(),
                             .b = x.data() + kHeads * kHeadDim,
                             .c = x.data() + kHeads * kHeadDim + 2 * width,
                             .delta = delta.data(),
                             .decay = decay.data(),
                             .skip = skip.data(),
                             .x_stride = stride,
                             .y = y.data(),
                             .y_stride = kHeads * kHeadDim,
                             .heads = kHeads,
                             .head_dim = kHeadDim,
                             .state_dim = width,
                             .groups = 2};
      kernels(isa).ssm_scan(args, {0, 3});  // a split range gives the same
      kernels(isa).ssm_scan(args, {3, 2 * kHeads});
      ASSERT_TRUE(same_bits(y, expected)) << host::isa_name(isa);
    }
  }
}

// Unit keys, as the rule has them: what is remembered stays in bounds, so the double oracle may be near.
std::vector<float> units(Random& random, std::size_t count, std::size_t width) {
  std::vector<float> all = random.normals(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    float squares = 0;
    for (std::size_t n = 0; n < width; ++n) squares += all[i * width + n] * all[i * width + n];
    for (std::size_t n = 0; n < width; ++n) all[i * width + n] /= std::sqrt(squares);
  }
  return all;
}

TEST(DeltaScan, EqualsTheWrittenOrderOnEveryKeyWidth) {
  Random random(68);
  constexpr std::size_t kHeads = 4, kKeyHeads = 2, kValue = 3, kRows = 6;
  for (std::size_t width = 1; width <= 70; ++width) {
    SCOPED_TRACE(::testing::Message() << "width " << width << " " << random.note());
    const std::size_t stride = 2 * kKeyHeads * width + kHeads * kValue;  // q, k, v
    const auto v = random.normals(kRows * kHeads * kValue);
    const auto keys = units(random, kRows * 2 * kKeyHeads, width);
    std::vector<float> x;
    for (std::size_t r = 0; r < kRows; ++r) {
      x.insert(x.end(), keys.begin() + r * 2 * kKeyHeads * width, keys.begin() + (r + 1) * 2 * kKeyHeads * width);
      x.insert(x.end(), v.begin() + r * kHeads * kValue, v.begin() + (r + 1) * kHeads * kValue);
    }
    auto beta = random.normals(kRows * kHeads), decay = random.normals(kRows * kHeads * width);
    for (float& b : beta) b = std::fabs(b) / (1 + std::fabs(b));
    for (float& d : decay) d = std::fabs(d) / (1 + std::fabs(d));
    const std::vector<std::uint32_t> offsets{0, 2, kRows}, sequences{3, 1};
    for (const auto& [turns, channels] : {std::pair(false, false), {true, false}, {false, true}}) {
      const std::size_t each = channels ? width : 1;  // decays of a head
      std::vector<float> expected;
      for (std::size_t span = 0; span < 2; ++span) {
        std::vector<reference::DeltaHead> heads(kHeads, reference::DeltaHead(kValue, width));
        for (std::size_t r = offsets[span]; r < offsets[span + 1]; ++r)
          for (std::size_t h = 0; h < kHeads; ++h) {
            const auto row = std::span<const float>(x).subspan(r * stride, stride);
            const std::size_t key = turns ? h % kKeyHeads : h / 2;
            const auto q = row.subspan(key * width, width), k = row.subspan((kKeyHeads + key) * width, width);
            const auto value = row.subspan(2 * kKeyHeads * width + h * kValue, kValue);
            const reference::DeltaHead::Step step{beta[r * kHeads + h],
                                                  std::span<const float>(decay).subspan((r * kHeads + h) * each, each)};
            const auto y = heads[h].next_exact(q, k, value, step);
            const auto oracle = heads[h].next_reference(q, k, value, step);
            for (std::size_t p = 0; p < kValue; ++p) EXPECT_NEAR(y[p], oracle[p], 2e-6);
            expected.insert(expected.end(), y.begin(), y.end());
          }
      }
      for (host::Isa isa : isas()) {
        std::vector<float> state(4 * kHeads * kValue * width), mixed = x, y;
        const DeltaScanArgs args{.spans = {offsets.data(), sequences.data(), 2},
                                 .state = {reinterpret_cast<std::byte*>(state.data()), kHeads * kValue * width * 4},
                                 .q = mixed.data(),
                                 .k = mixed.data() + kKeyHeads * width,
                                 .v = mixed.data() + 2 * kKeyHeads * width,
                                 .y = mixed.data() + 2 * kKeyHeads * width,
                                 .stride = stride,
                                 .beta = beta.data(),
                                 .decay = decay.data(),
                                 .heads = kHeads,
                                 .key_heads = kKeyHeads,
                                 .key_dim = width,
                                 .value_dim = kValue,
                                 .keys_take_turns = turns,
                                 .channel_decay = channels};
        kernels(isa).delta_scan(args, {0, 3});  // a split range gives the same
        kernels(isa).delta_scan(args, {3, 2 * kHeads});
        for (std::size_t r = 0; r < kRows; ++r)
          y.insert(y.end(), mixed.begin() + (r + 1) * stride - kHeads * kValue, mixed.begin() + (r + 1) * stride);
        ASSERT_TRUE(same_bits(y, expected)) << host::isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::simd
