#include <cmath>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::simd {
namespace {

using testing::isas;
using testing::Random;
using testing::same_bits;

TEST(RmsNorm, EqualsTheWrittenOrderOnEveryWidth) {
  Random random(10);
  for (std::size_t width = 1; width <= 130; ++width) {
    const std::size_t rows = 1 + width % 9, stride = width + width % 5;
    SCOPED_TRACE(::testing::Message() << "width " << width << " " << random.note());
    const auto x = random.hostiles(rows * stride), weight = random.normals(width);
    const float offset = static_cast<float>(width % 2);
    for (host::Isa isa : isas()) {
      std::vector<float> y(rows * width);
      kernels(isa).rms_norm({.x = x.data(),
                             .weight = weight.data(),
                             .y = y.data(),
                             .width = width,
                             .x_stride = stride,
                             .y_stride = width,
                             .eps = 1e-5f,
                             .weight_offset = offset},
                            {0, rows});
      for (std::size_t r = 0; r < rows; ++r) {
        const auto expected = reference::rms_norm_exact(std::span(x).subspan(r * stride, width), weight,
                                                        {.eps = 1e-5f, .weight_offset = offset});
        ASSERT_TRUE(same_bits(std::span(y).subspan(r * width, width), expected)) << host::isa_name(isa);
      }
    }
  }
}

TEST(RmsNorm, IsCloseToTheFormula) {
  Random random(11);
  SCOPED_TRACE(random.note());
  const auto x = random.normals(4096), weight = random.normals(4096);
  const auto exact = reference::rms_norm_reference(x, weight, {.eps = 1e-5, .weight_offset = 1});
  std::vector<float> y(4096);
  kernels(isas().back())
      .rms_norm({.x = x.data(),
                 .weight = weight.data(),
                 .y = y.data(),
                 .width = 4096,
                 .x_stride = 4096,
                 .y_stride = 4096,
                 .eps = 1e-5f,
                 .weight_offset = 1},
                {0, 1});
  // 16 chains of 256 additions, three roundings after them: far below 1e-5 of the value.
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], exact[i], 1e-5 * (std::fabs(exact[i]) + 1e-3));
}

struct RopeCase {
  std::size_t head_dim, rotary_dims;
};

TEST(Rope, EqualsTheWrittenStepsInBothLayoutsAndPartialRotation) {
  Random random(12);
  constexpr std::size_t kHeads = 3, kRows = 5;
  for (const RopeCase c : {RopeCase{32, 32}, {64, 64}, {80, 80}, {80, 20}, {128, 128}, {128, 64}, {6, 2}, {40, 40}}) {
    for (const bool interleaved : {false, true}) {
      SCOPED_TRACE(::testing::Message() << c.head_dim << "/" << c.rotary_dims << " interleaved " << interleaved << " "
                                        << random.note());
      const std::size_t stride = kHeads * c.head_dim + 7, pairs = c.rotary_dims / 2;
      const auto x = random.hostiles(kRows * stride);
      std::vector<float> inv_freq(pairs);
      for (std::size_t i = 0; i < pairs; ++i)
        inv_freq[i] = std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs));
      const std::uint32_t positions[kRows] = {0, 1, 63, 64, (1u << 20) - 1};
      for (const float factor : {1.0f, 1.190238f}) {
        std::vector<float> expected = x;
        for (std::size_t r = 0; r < kRows; ++r)
          for (std::size_t h = 0; h < kHeads; ++h)
            reference::rope_exact(
                std::span(expected).subspan(r * stride + h * c.head_dim, c.head_dim),
                {.inv_freq = inv_freq, .attn_factor = factor, .interleaved = interleaved, .position = positions[r]});
        for (host::Isa isa : isas()) {
          const auto layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalf;
          std::vector<float> y = x, cosines(kRows * c.rotary_dims), sines(kRows * c.rotary_dims);
          kernels(isa).rope_table({.positions = positions,
                                   .inv_freq = inv_freq.data(),
                                   .cosines = cosines.data(),
                                   .sines = sines.data(),
                                   .rotary_dims = c.rotary_dims,
                                   .attn_factor = factor,
                                   .layout = layout},
                                  {0, kRows});
          kernels(isa).rope({.x = y.data(),
                             .x_stride = stride,
                             .heads = kHeads,
                             .head_dim = c.head_dim,
                             .cosines = cosines.data(),
                             .sines = sines.data(),
                             .rotary_dims = c.rotary_dims,
                             .layout = layout},
                            {0, kRows});
          ASSERT_TRUE(same_bits(y, expected)) << host::isa_name(isa);
        }
      }
    }
  }
}

TEST(Elementwise, EqualTheWrittenStepsOnEveryLength) {
  Random random(13);
  SCOPED_TRACE(random.note());
  for (std::size_t n = 1; n <= 70; ++n) {
    auto a = random.hostiles(n), b = random.hostiles(n);
    a[0] = 100.0f, b[n - 1] = -100.0f;
    std::vector<float> swiglu(n), sum(n), biased(n), capped(n), scaled(n);
    for (std::size_t i = 0; i < n; ++i) {
      swiglu[i] = reference::silu_exact(b[i]) * a[i];
      sum[i] = std::fma(0.22f, b[i], a[i]);
      biased[i] = a[i] + b[i];
      capped[i] = reference::softcap_exact(a[i] * 0.5f, 30.0f);
      scaled[i] = a[i] * 0.5f;
    }
    for (host::Isa isa : isas()) {
      const Kernels& k = kernels(isa);
      std::vector<float> y(n);
      k.swiglu({.gate = b.data(), .up = a.data(), .x_stride = n, .y = y.data(), .y_stride = n, .width = n}, {0, 1});
      EXPECT_TRUE(same_bits(y, swiglu)) << host::isa_name(isa);
      const std::size_t cut = n / 3;  // a split range gives the same
      k.residual_add({.a = a.data(), .b = b.data(), .y = y.data(), .scale = 0.22f}, {0, cut});
      k.residual_add({.a = a.data(), .b = b.data(), .y = y.data(), .scale = 0.22f}, {cut, n});
      EXPECT_TRUE(same_bits(y, sum)) << host::isa_name(isa);
      y = a;
      k.add_bias({.x = y.data(), .x_stride = n, .width = n, .bias = b.data()}, {0, 1});
      EXPECT_TRUE(same_bits(y, biased)) << host::isa_name(isa);
      y = a;
      k.scale_softcap({.y = y.data(), .scale = 0.5f, .softcap = 30.0f}, {0, n});
      EXPECT_TRUE(same_bits(y, capped)) << host::isa_name(isa);
      y = a;
      k.scale_softcap({.y = y.data(), .scale = 0.5f, .softcap = 0.0f}, {0, cut});
      k.scale_softcap({.y = y.data(), .scale = 0.5f, .softcap = 0.0f}, {cut, n});
      EXPECT_TRUE(same_bits(y, scaled)) << host::isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::simd
