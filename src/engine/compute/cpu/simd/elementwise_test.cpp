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

TEST(LayerNorm, EqualsTheWrittenOrderOnEveryWidth) {
  Random random(14);
  for (std::size_t width = 1; width <= 130; ++width) {
    const std::size_t rows = 1 + width % 9, stride = width + width % 5;
    SCOPED_TRACE(::testing::Message() << "width " << width << " " << random.note());
    const auto x = random.hostiles(rows * stride), weight = random.normals(width);
    const auto bias = width % 2 == 0 ? random.normals(width) : std::vector<float>{};
    for (host::Isa isa : isas()) {
      std::vector<float> y(rows * width);
      kernels(isa).layer_norm({.x = x.data(),
                               .weight = weight.data(),
                               .bias = bias.empty() ? nullptr : bias.data(),
                               .y = y.data(),
                               .width = width,
                               .x_stride = stride,
                               .y_stride = width,
                               .eps = 1e-6f},
                              {0, rows});
      for (std::size_t r = 0; r < rows; ++r) {
        const auto expected = reference::layer_norm_exact(std::span(x).subspan(r * stride, width), weight, bias, 1e-6f);
        ASSERT_TRUE(same_bits(std::span(y).subspan(r * width, width), expected)) << host::isa_name(isa);
      }
    }
  }
}

TEST(LayerNorm, IsCloseToTheFormula) {
  Random random(15);
  SCOPED_TRACE(random.note());
  auto x = random.normals(4096);
  const auto weight = random.normals(4096), bias = random.normals(4096);
  for (float& v : x) v += 3.0f;
  const auto exact = reference::layer_norm_reference(x, weight, bias, 1e-6);
  std::vector<float> y(4096);
  kernels(isas().back())
      .layer_norm({.x = x.data(),
                   .weight = weight.data(),
                   .bias = bias.data(),
                   .y = y.data(),
                   .width = 4096,
                   .x_stride = 4096,
                   .y_stride = 4096,
                   .eps = 1e-6f},
                  {0, 1});
  // The mean carries at most 260 roundings of 2^-24 of a sum of terms near 3, in fact their square root: 3e-6 at most
  // moves every x - mean by that.
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], exact[i], 1e-5 * (std::fabs(exact[i]) + std::fabs(weight[i])));
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

TEST(Rope, PairsTurnByTheirOwnAxis) {
  Random random(16);
  SCOPED_TRACE(random.note());
  constexpr std::size_t kDims = 72, kPairs = kDims / 2, kRows = 5;
  std::vector<float> inv_freq(kPairs);
  for (float& f : inv_freq) f = random.uniform(0, 1);
  std::vector<std::uint8_t> axes(kPairs);
  for (auto& axis : axes) axis = static_cast<std::uint8_t>(random.below(3));
  std::vector<std::uint32_t> positions(3 * (kRows + 2));
  for (auto& position : positions) position = static_cast<std::uint32_t>(random.below(kPositionsMax));
  const auto x = random.normals(kRows * kDims);
  for (const bool interleaved : {false, true}) {
    std::vector<float> expected = x;
    for (std::size_t r = 0; r < kRows; ++r) {
      std::vector<std::uint32_t> of_pair;
      for (auto axis : axes) of_pair.push_back(positions[axis * (kRows + 2) + r]);
      reference::rope_exact(std::span(expected).subspan(r * kDims, kDims),
                            {.inv_freq = inv_freq, .interleaved = interleaved, .position_of_pair = of_pair});
    }
    for (host::Isa isa : isas()) {
      const auto layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalf;
      std::vector<float> y = x, cosines(kRows * kDims), sines(kRows * kDims);
      kernels(isa).rope_table({.positions = positions.data(),
                               .axis_of_pair = axes.data(),
                               .axis_stride = kRows + 2,
                               .inv_freq = inv_freq.data(),
                               .cosines = cosines.data(),
                               .sines = sines.data(),
                               .rotary_dims = kDims,
                               .layout = layout},
                              {0, kRows});
      kernels(isa).rope({.x = y.data(),
                         .x_stride = kDims,
                         .heads = 1,
                         .head_dim = kDims,
                         .cosines = cosines.data(),
                         .sines = sines.data(),
                         .rotary_dims = kDims,
                         .layout = layout},
                        {0, kRows});
      ASSERT_TRUE(same_bits(y, expected)) << host::isa_name(isa) << " interleaved " << interleaved;
    }
  }
}

TEST(Activations, EqualTheWrittenStepsOnEveryLength) {
  Random random(17);
  SCOPED_TRACE(random.note());
  constexpr reference::SwigluOaiOptions kOai{.alpha = 1.702f, .limit = 7.0f};
  constexpr reference::XieluOptions kXielu{.alpha = 1.702f, .alpha_negative = 0.8f, .beta = 0.5f, .eps = -1e-6f};
  for (std::size_t n = 1; n <= 70; ++n) {
    auto gate = random.hostiles(n), up = random.hostiles(n);
    for (std::size_t i = 0; i < n; i += 3) gate[i] *= 9.0f, up[i] *= -9.0f;
    const auto expect = [&](Activation act, bool with_up, auto&& formula) {
      std::vector<float> expected(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = formula(gate[i], up[i]);
      for (host::Isa isa : isas()) {
        std::vector<float> y = gate;  // in place
        kernels(isa).swiglu({.gate = y.data(),
                             .up = with_up ? up.data() : nullptr,
                             .x_stride = n,
                             .y = y.data(),
                             .y_stride = n,
                             .width = n,
                             .act = act,
                             .alpha = kOai.alpha,
                             .limit = kOai.limit,
                             .alpha_negative = kXielu.alpha_negative,
                             .beta = kXielu.beta,
                             .eps = kXielu.eps},
                            {0, 1});
        EXPECT_TRUE(same_bits(y, expected)) << host::isa_name(isa) << " activation " << static_cast<int>(act);
      }
    };
    expect(Activation::kSilu, false, [](float g, float) { return reference::silu_exact(g); });
    expect(Activation::kGeluTanh, true, [](float g, float u) { return reference::gelu_tanh_exact(g) * u; });
    expect(Activation::kGeluTanh, false, [](float g, float) { return reference::gelu_tanh_exact(g); });
    expect(Activation::kGeluErf, true, [](float g, float u) { return reference::gelu_erf_exact(g) * u; });
    expect(Activation::kGeluErf, false, [](float g, float) { return reference::gelu_erf_exact(g); });
    expect(Activation::kRelu2, true, [](float g, float u) { return reference::relu2_exact(g) * u; });
    expect(Activation::kRelu2, false, [](float g, float) { return reference::relu2_exact(g); });
    expect(Activation::kSigmoid, true, [](float g, float u) { return reference::sigmoid_exact(g) * u; });
    expect(Activation::kXielu, false, [&](float g, float) { return reference::xielu_exact(g, kXielu); });
    expect(Activation::kSwigluOai, true, [&](float g, float u) { return reference::swiglu_oai_exact(g, u, kOai); });
  }
}

TEST(Activations, AreCloseToTheFormula) {
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 0x1p-10f);
  const auto run = [&](Activation act) {
    std::vector<float> y(x.size());
    kernels(isas().back())
        .swiglu({.gate = x.data(),
                 .x_stride = x.size(),
                 .y = y.data(),
                 .y_stride = x.size(),
                 .width = x.size(),
                 .act = act},
                {0, 1});
    return y;
  };
  const auto erf = run(Activation::kGeluErf), tanh = run(Activation::kGeluTanh);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = reference::gelu_erf_reference(x[i]);
    // erf within 2 ulp and its argument within 1.5: 1 + erf is off by at most 2^-22, which x / 2 scales.
    ASSERT_NEAR(erf[i], exact, 0x1p-23 * std::fabs(x[i]) + 0x1p-23 * std::fabs(exact)) << x[i];
    // e^-2u inherits the absolute error of 2u, four roundings of 2^-24 of |2u| <= 0.15 |x|^3 + 1.6 |x|.
    const double twice_u = std::fabs(x[i]) * (1.6 + 0.072 * x[i] * x[i]);
    const double value = reference::gelu_tanh_reference(x[i]);
    const double relative = 0x1p-24 * (6 + 4 * twice_u);
    // The oracle itself loses 1 + tanh(u) below 2^-52 of 1.
    ASSERT_NEAR(tanh[i], value, relative * std::fabs(value) + 0x1p-50 * std::fabs(x[i])) << x[i];
  }
}

// Where e^x of a logit under the largest becomes 0, and far behind.
TEST(Probabilities, OfFarLogitsAreZero) {
  const float low = -0x1.5d58ap+6f;  // ln 2^-126
  std::vector<float> x = {0.0f, -0.0f, low, -1e4f, -3e38f, -INFINITY, -88.0f, -103.9f, -104.1f, -0x1p-149f};
  for (float v = low, w = low; x.size() < 200; x.push_back(v), x.push_back(w))
    v = std::nextafter(v, 0.0f), w = std::nextafter(w, -INFINITY);
  const auto expected = reference::softmax_exact(x);
  for (host::Isa isa : isas()) {
    std::vector<float> y = x;
    kernels(isa).probabilities({.x = y.data(), .width = x.size(), .kind = Probabilities::kSoftmax}, {0, 1});
    EXPECT_TRUE(same_bits(y, expected)) << host::isa_name(isa);
  }
}

TEST(Probabilities, EqualTheWrittenStepsOnEveryWidth) {
  Random random(18);
  SCOPED_TRACE(random.note());
  for (std::size_t n = 1; n <= 130; ++n) {
    const auto x = random.normals(3 * n);
    for (const bool softmax : {true, false}) {
      std::vector<float> expected;
      for (std::size_t r = 0; r < 3; ++r) {
        const auto row = std::span(x).subspan(r * n, n);
        if (softmax) {
          const auto p = reference::softmax_exact(row);
          expected.insert(expected.end(), p.begin(), p.end());
          double total = 0;
          for (float v : p) total += v;
          EXPECT_NEAR(total, 1, 1e-6);
        } else {
          for (float v : row) expected.push_back(reference::sigmoid_exact(v));
        }
      }
      for (host::Isa isa : isas()) {
        std::vector<float> y = x;
        kernels(isa).probabilities(
            {.x = y.data(), .width = n, .kind = softmax ? Probabilities::kSoftmax : Probabilities::kSigmoid}, {0, 1});
        kernels(isa).probabilities(
            {.x = y.data(), .width = n, .kind = softmax ? Probabilities::kSoftmax : Probabilities::kSigmoid}, {1, 3});
        EXPECT_TRUE(same_bits(y, expected)) << host::isa_name(isa) << " width " << n << " softmax " << softmax;
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
