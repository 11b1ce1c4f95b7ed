#include "engine/compute/reference/exact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/compute/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::reference {
namespace {

using plan::DType;

template <class T>
T read(std::span<const std::byte> bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

float two_to(int n) { return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23); }

// Block b of 32 elements of a quantized row: value of element e = (d * scale) * q[e], then + or - m * min; scale and min are
// those of the element's half.
enum class Min { kNone, kAdded, kSubtracted };
struct WeightBlock {
  std::array<int, 32> q{};
  std::size_t scales = 1;  // 2: the halves have their own
  std::array<int, 2> scale{1, 1}, min{1, 1};
  float d = 0, m = 0;
  Min kind = Min::kNone;

  float value(std::size_t e) const {
    const float scaled = d * static_cast<float>(scale[e / 16]) * static_cast<float>(q[e]);
    if (kind == Min::kNone) return scaled;
    const float part = m * static_cast<float>(min[e / 16]);
    return kind == Min::kAdded ? scaled + part : scaled - part;
  }
};

int nibble(std::uint8_t byte, std::size_t high) { return byte >> 4 * high & 15; }

// The types of 32 elements to a stored block.
WeightBlock small_block(DType dtype, std::span<const std::byte> stored, std::size_t block) {
  WeightBlock out{};
  const auto codes = [&](const auto& b, const auto& value) {
    for (std::size_t e = 0; e < 32; ++e) out.q[e] = value(nibble(b.qs[e % 16], e / 16), e);
  };
  const auto fifth = [](const auto& b, std::size_t e) { return (b.qh[e / 8] >> e % 8 & 1) << 4; };
  if (dtype == DType::kQ8_0) {
    const auto b = read<plan::BlockQ8_0>(stored, block);
    std::copy(std::begin(b.qs), std::end(b.qs), out.q.begin());
    out.d = half_to_float(b.d);
  } else if (dtype == DType::kQ4_0) {
    const auto b = read<plan::BlockQ4_0>(stored, block);
    codes(b, [](int q, std::size_t) { return q - 8; });
    out.d = half_to_float(b.d);
  } else if (dtype == DType::kQ4_1) {
    const auto b = read<plan::BlockQ4_1>(stored, block);
    codes(b, [](int q, std::size_t) { return q; });
    out.d = half_to_float(b.d), out.m = half_to_float(b.m), out.kind = Min::kAdded;
  } else if (dtype == DType::kQ5_0) {
    const auto b = read<plan::BlockQ5_0>(stored, block);
    codes(b, [&](int q, std::size_t e) { return (q | fifth(b, e)) - 16; });
    out.d = half_to_float(b.d);
  } else if (dtype == DType::kQ5_1) {
    const auto b = read<plan::BlockQ5_1>(stored, block);
    codes(b, [&](int q, std::size_t e) { return q | fifth(b, e); });
    out.d = half_to_float(b.d), out.m = half_to_float(b.m), out.kind = Min::kAdded;
  } else if (dtype == DType::kIQ4_NL) {
    const auto b = read<plan::BlockIQ4_NL>(stored, block);
    codes(b, [](int q, std::size_t) { return int{plan::kIq4Values[static_cast<std::size_t>(q)]}; });
    out.d = half_to_float(b.d);
  } else {
    const auto b = read<plan::BlockMXFP4>(stored, block);
    codes(b, [](int q, std::size_t) { return int{plan::kMxfp4Doubled[static_cast<std::size_t>(q)]}; });
    out.d = static_cast<float>(std::ldexp(1.0, b.e - 128));
  }
  return out;
}

// Part g (32 elements) of a stored block of 256.
WeightBlock super_block(DType dtype, std::span<const std::byte> stored, std::size_t block, std::size_t g) {
  WeightBlock out{};
  const std::size_t n = g / 4, t = g % 4;  // 128 elements share bytes, which hold them 32 apart
  const auto fill = [&](const auto& q) {
    for (std::size_t l = 0; l < 32; ++l) out.q[l] = q(l);
  };
  const auto number = static_cast<unsigned>(g);
  out.scales = dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kQ6_K ? 2 : 1;
  if (dtype == DType::kQ2_K) {
    const auto b = read<plan::BlockQ2_K>(stored, block);
    fill([&](std::size_t l) { return b.qs[32 * n + l] >> 2 * t & 3; });
    for (std::size_t h = 0; h < 2; ++h) out.scale[h] = b.scales[2 * g + h] & 15, out.min[h] = b.scales[2 * g + h] >> 4;
    out.d = half_to_float(b.d), out.m = half_to_float(b.dmin), out.kind = Min::kSubtracted;
  } else if (dtype == DType::kQ3_K) {
    const auto b = read<plan::BlockQ3_K>(stored, block);
    fill([&](std::size_t l) { return (b.qs[32 * n + l] >> 2 * t & 3) - ((b.hmask[l] >> g & 1) != 0 ? 0 : 4); });
    for (unsigned h = 0; h < 2; ++h) out.scale[h] = plan::q3_k_scale(b.scales, 2 * number + h);
    out.d = half_to_float(b.d);
  } else if (dtype == DType::kQ4_K) {
    const auto b = read<plan::BlockQ4_K>(stored, block);
    fill([&](std::size_t l) { return nibble(b.qs[32 * (g / 2) + l], g % 2); });
    out.scale.fill(plan::k4_scale(b.scales, number)), out.min.fill(plan::k4_min(b.scales, number));
    out.d = half_to_float(b.d), out.m = half_to_float(b.dmin), out.kind = Min::kSubtracted;
  } else if (dtype == DType::kQ5_K) {
    const auto b = read<plan::BlockQ5_K>(stored, block);
    fill([&](std::size_t l) { return nibble(b.qs[32 * (g / 2) + l], g % 2) | (b.qh[l] >> g & 1) << 4; });
    out.scale.fill(plan::k4_scale(b.scales, number)), out.min.fill(plan::k4_min(b.scales, number));
    out.d = half_to_float(b.d), out.m = half_to_float(b.dmin), out.kind = Min::kSubtracted;
  } else if (dtype == DType::kQ6_K) {
    const auto b = read<plan::BlockQ6_K>(stored, block);
    fill([&](std::size_t l) {
      return (nibble(b.ql[64 * n + l + 32 * (t % 2)], t / 2) | (b.qh[32 * n + l] >> 2 * t & 3) << 4) - 32;
    });
    for (std::size_t h = 0; h < 2; ++h) out.scale[h] = b.scales[2 * g + h];
    out.d = half_to_float(b.d);
  } else {
    const auto b = read<plan::BlockIQ4_XS>(stored, block);
    fill([&](std::size_t l) {
      return int{plan::kIq4Values[static_cast<std::size_t>(nibble(b.qs[16 * g + l % 16], l / 16))]};
    });
    out.scale.fill(plan::iq4_xs_scale(b, number));
    out.d = half_to_float(b.d);
  }
  return out;
}

WeightBlock weight_block(DType dtype, std::span<const std::byte> stored, std::size_t block) {
  return plan::dtype_info(dtype).block_elements == 32 ? small_block(dtype, stored, block)
                                                      : super_block(dtype, stored, block / 8, block % 8);
}

// Of positive numbers to 22 bits, halves up.
float to_22_bits(float x) { return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 2U) & ~3U); }

}  // namespace

float tree_sum(std::span<const float, 16> lanes) {
  std::array<float, 16> v;
  std::copy(lanes.begin(), lanes.end(), v.begin());
  for (std::size_t half = 8; half >= 1; half /= 2)
    for (std::size_t i = 0; i < half; ++i) v[i] = v[i] + v[i + half];
  return v[0];
}

float exp_exact(float x) {
  constexpr float kLow = -0x1.5d58ap+6f, kHigh = 0x1.62e43p+6f;
  if (std::isnan(x)) return x;
  if (x < kLow) return 0;
  if (x > kHigh) return std::numeric_limits<float>::infinity();
  const float n = std::nearbyint(x * 0x1.715476p+0f);
  float r = std::fma(-n, 0x1.62e43p-1f, x);
  r = std::fma(-n, -0x1.05c61p-29f, r);
  float q = 0x1.6d1106p-10f;
  for (float c : {0x1.120b6cp-7f, 0x1.55551ap-5f, 0x1.5554dcp-3f, 0.5f}) q = std::fma(q, r, c);
  const float p = std::fma(r * r, q, r) + 1.0f;
  const int ni = static_cast<int>(n), half = ni >> 1;
  return p * two_to(half) * two_to(ni - half);
}

void sincos_exact(float x, float& sine, float& cosine) {
  const float n = std::nearbyint(x * 0x1.45f306p-1f);
  float r = x;
  for (float part : {0x1.921fb6p+0f, -0x1.777a5cp-25f, -0x1.ee59dap-50f}) r = std::fma(-n, part, r);
  const float t = r * r;
  const float ps = std::fma(std::fma(-0x1.9a5006p-13f, t, 0x1.110b3ep-7f), t, -0x1.555552p-3f);
  const float s = std::fma(r * t, ps, r);
  const float pc = std::fma(std::fma(0x1.9b771p-16f, t, -0x1.6c1216p-10f), t, 0x1.555554p-5f);
  const float c = std::fma(t * t, pc, std::fma(-0.5f, t, 1.0f));
  switch (static_cast<int>(n) & 3) {
    case 0: sine = s, cosine = c; break;
    case 1: sine = c, cosine = -s; break;
    case 2: sine = -s, cosine = -c; break;
    default: sine = -c, cosine = s; break;
  }
}

float tanh_exact(float x) {
  const float a = std::fabs(x);
  if (a < 0.625f) {
    const float t = x * x;
    float p = -0x1.8f8de4p-8f;
    for (float c : {0x1.58048ep-6f, -0x1.b9258ap-5f, 0x1.110e1cp-3f, -0x1.555552p-2f}) p = std::fma(p, t, c);
    return std::fma(x * t, p, x);
  }
  return std::copysign(1.0f - 2.0f / (exp_exact(a + a) + 1.0f), x);
}

float erf_exact(float x) {
  const float a = std::fabs(x);
  if (a < 1.0f) {
    const float t = x * x;
    float p = 0x1.4a5690p-14f;
    for (float c : {-0x1.a45088p-11f, 0x1.541270p-8f, -0x1.b7fabap-6f, 0x1.ce2d10p-4f, -0x1.81273ep-2f, 0x1.06eba8p-3f})
      p = std::fma(p, t, c);
    return std::fma(x, p, x);
  }
  const float c = std::isnan(a) ? a : std::min(a, 4.0f);
  float q = 0x1.b77830p-20f;
  for (float k : {-0x1.825ce4p-15f, 0x1.38e5e6p-11f, -0x1.37ecc6p-8f, 0x1.b0e246p-6f, -0x1.c2e356p-4f, -0x1.437eb4p-1f,
                  -0x1.2156fap+0f, 0x1.4fb068p-12f})
    q = std::fma(q, c, k);
  return std::copysign(1.0f - exp_exact(q), x);
}

std::vector<float> rms_norm_exact(std::span<const float> x, std::span<const float> weight, const NormOptions& options) {
  std::array<float, 16> lanes{};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float mean = tree_sum(lanes) / static_cast<float>(x.size());
  const float r = 1.0f / std::sqrt(mean + options.eps);
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * r) * (weight[i] + options.weight_offset);
  return y;
}

std::vector<float> layer_norm_exact(std::span<const float> x, std::span<const float> weight,
                                    std::span<const float> bias, float eps) {
  const auto n = static_cast<float>(x.size());
  std::array<float, 16> sums{}, squares{};
  for (std::size_t i = 0; i < x.size(); ++i) sums[i % 16] += x[i];
  const float mean = tree_sum(sums) / n;
  for (std::size_t i = 0; i < x.size(); ++i) squares[i % 16] = std::fma(x[i] - mean, x[i] - mean, squares[i % 16]);
  const float r = 1.0f / std::sqrt(tree_sum(squares) / n + eps);
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = std::fma((x[i] - mean) * r, weight[i], bias.empty() ? 0.0f : bias[i]);
  return y;
}

std::vector<float> mean_exact(std::span<const float> x, std::size_t width) {
  std::vector<float> y(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(width));
  for (std::size_t i = width; i < x.size(); ++i) y[i % width] += x[i];
  for (float& sum : y) sum /= static_cast<float>(x.size() / width);
  return y;
}

std::vector<float> dequantize(DType dtype, std::span<const std::byte> stored, std::size_t rows, std::size_t cols) {
  std::vector<float> out(rows * cols);
  for (std::size_t i = 0; i < out.size(); ++i) {
    switch (dtype) {
      case DType::kF32: out[i] = read<float>(stored, i); break;
      case DType::kF16: out[i] = half_to_float(read<std::uint16_t>(stored, i)); break;
      case DType::kBF16: out[i] = bfloat_to_float(read<std::uint16_t>(stored, i)); break;
      default: out[i] = weight_block(dtype, stored, i / 32).value(i % 32); break;
    }
  }
  return out;
}

QuantizedRow quantize_exact(std::span<const float> x) {
  QuantizedRow row;
  for (std::size_t b = 0; b < x.size(); b += 32) {
    const auto block = x.subspan(b, 32);
    float amax = 0;
    bool finite = true;
    for (float v : block) {
      finite = finite && std::isfinite(v);
      amax = std::max(amax, std::fabs(v));
    }
    finite = finite && amax < 0x1p100f;
    const bool usable = finite && amax >= 0x1p-100f;
    const float inverse = usable ? 127.0f / amax : 0.0f;
    for (float v : block)
      row.q.push_back(usable ? static_cast<std::int8_t>(std::nearbyint(v * inverse)) : std::int8_t{0});
    row.scales.push_back(usable ? to_22_bits(amax / 127.0f) : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  }
  return row;
}

std::vector<float> matmul_exact(DType dtype, std::span<const std::byte> stored, std::size_t rows,
                                std::span<const float> x) {
  const std::size_t cols = x.size();
  std::vector<float> y(rows);
  if (!plan::is_quantized(dtype)) {
    const std::vector<float> w = dequantize(dtype, stored, rows, cols);
    for (std::size_t n = 0; n < rows; ++n) {
      std::array<float, 2> sums{};
      for (std::size_t k = 0; k < cols; ++k) sums[k % 2] = std::fma(w[n * cols + k], x[k], sums[k % 2]);
      y[n] = sums[0] + sums[1];
    }
    return y;
  }
  const QuantizedRow xq = quantize_exact(x);
  const std::size_t blocks = cols / 32;
  for (std::size_t n = 0; n < rows; ++n) {
    for (std::size_t b = 0; b < blocks; ++b) {
      const WeightBlock w = weight_block(dtype, stored, n * blocks + b);
      std::array<std::int32_t, 2> sums{}, x_sums{};
      for (std::size_t i = 0; i < 32; ++i) {
        const std::int32_t q = xq.q[b * 32 + i];
        sums[i / 16 % w.scales] += w.q[i] * q;
        x_sums[i / 16 % w.scales] += w.kind == Min::kAdded ? q : -q;
      }
      for (std::size_t s = 0; s < w.scales; ++s)
        y[n] = std::fma(w.d * static_cast<float>(w.scale[s]), static_cast<float>(sums[s]) * xq.scales[b], y[n]);
      if (w.kind == Min::kNone) continue;
      for (std::size_t s = 0; s < w.scales; ++s)
        y[n] = std::fma(w.m * static_cast<float>(w.min[s]), static_cast<float>(x_sums[s]) * xq.scales[b], y[n]);
    }
  }
  return y;
}

void rope_exact(std::span<float> x, const RopeOptions& options) {
  const std::size_t pairs = options.inv_freq.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    float s = 0, c = 0;
    const std::uint32_t position = options.position_of_pair.empty() ? options.position : options.position_of_pair[i];
    sincos_exact(static_cast<float>(position) * options.inv_freq[i], s, c);
    s *= options.attn_factor, c *= options.attn_factor;
    float& a = x[options.interleaved ? 2 * i : i];
    float& b = x[options.interleaved ? 2 * i + 1 : i + pairs];
    const float a0 = a, b0 = b;
    a = std::fma(a0, c, b0 * -s);
    b = std::fma(b0, c, a0 * s);
  }
}

float silu_exact(float x) { return x / (1.0f + exp_exact(0.0f - x)); }
float gelu_tanh_exact(float x) {
  const float twice_u = x * std::fma(x * x, 0x1.2444f2p-4f, 0x1.988454p+0f);
  return x / (1.0f + exp_exact(0.0f - twice_u));
}
float gelu_erf_exact(float x) { return (0.5f * x) * (1.0f + erf_exact(x * 0x1.6a09e6p-1f)); }
float relu2_exact(float x) {
  const float positive = x > 0.0f || std::isnan(x) ? x : 0.0f;
  return positive * positive;
}
float xielu_exact(float x, const XieluOptions& options) {
  const float linear = options.beta * x;
  if (x > 0.0f) return std::fma(options.alpha * x, x, linear);
  const float m = x < options.eps ? x : options.eps;
  constexpr float kInverseFactorials[] = {1.0f / 40320, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
  float series = 0;
  for (const float term : kInverseFactorials) series = std::fma(m, series, term);
  const float value = m > -0.5f ? std::fma(m * m, series, m - x) : (exp_exact(m) - 1.0f) - x;
  return std::fma(options.alpha_negative, value, linear);
}
float silu_clamped_exact(float gate, float up, float limit) {
  return silu_exact(std::min(gate, limit)) * std::clamp(up, -limit, limit);
}

float swiglu_oai_exact(float gate, float up, const SwigluOaiOptions& options) {
  const float g = options.limit < gate ? options.limit : gate;
  const float u = std::clamp(up, -options.limit, options.limit);
  return (u + 1.0f) * (g / (1.0f + exp_exact(0.0f - options.alpha * g)));
}

std::vector<float> softmax_exact(std::span<const float> x) {
  const float largest = *std::max_element(x.begin(), x.end());
  std::array<float, 16> lanes{};
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = exp_exact(x[i] - largest);
    lanes[i % 16] += y[i];
  }
  const float total = tree_sum(lanes);
  for (float& v : y) v /= total;
  return y;
}
float sigmoid_exact(float x) { return 1.0f / (1.0f + exp_exact(0.0f - x)); }

float softcap_exact(float x, float cap) { return cap * tanh_exact(x / cap); }

std::vector<float> attention_exact(std::span<const float> q, std::span<const float> keys, std::span<const float> values,
                                   const AttentionOptions& options) {
  const std::size_t end = options.position + 1;
  const std::size_t begin = options.window != 0 && end > options.window ? end - options.window : 0;
  const std::size_t value_dim = values.size() / (keys.size() / q.size());
  std::vector<float> scores(end);
  float largest = options.sink.value_or(-std::numeric_limits<float>::infinity());
  for (std::size_t p = begin; p < end; ++p) {
    float dot = 0;
    for (std::size_t i = 0; i < q.size(); ++i) dot = std::fma(q[i], keys[p * q.size() + i], dot);
    dot *= options.scale;
    scores[p] = options.softcap > 0 ? softcap_exact(dot, options.softcap) : dot;
    largest = std::max(largest, scores[p]);
  }
  std::array<float, 16> lanes{};
  std::vector<float> out(value_dim);
  for (std::size_t p = begin; p < end; ++p) {
    scores[p] = exp_exact(scores[p] - largest);
    lanes[p % 16] += scores[p];
    for (std::size_t i = 0; i < value_dim; ++i) out[i] = std::fma(scores[p], values[p * value_dim + i], out[i]);
  }
  float total = tree_sum(lanes);
  if (options.sink) total += exp_exact(*options.sink - largest);
  for (float& o : out) o /= total;
  return out;
}

std::vector<float> latent_attention_exact(std::span<const float> q, std::span<const float> rows,
                                          const LatentAttentionOptions& options) {
  const std::size_t end = options.position + std::size_t{1};
  std::vector<float> p(end);
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < end; ++j) {
    float dot = 0;
    for (std::size_t i = 0; i < q.size(); ++i) dot = std::fma(q[i], rows[j * q.size() + i], dot);
    p[j] = dot * options.scale;
    if (!options.chosen.empty() && (options.chosen[j / 32] >> j % 32 & 1) == 0)
      p[j] = -std::numeric_limits<float>::infinity();
    largest = std::max(largest, p[j]);
  }
  std::array<float, 16> totals{};
  for (std::size_t j = 0; j < end; ++j) {
    p[j] = exp_exact(p[j] - largest);
    totals[j % 16] += p[j];
  }
  const float total = tree_sum(totals);
  std::vector<float> out;
  for (std::size_t i = 0; i < options.latent_dim; ++i) {
    std::array<float, 16> lanes{};
    for (std::size_t j = 0; j < end; ++j) lanes[j % 16] = std::fma(p[j], rows[j * q.size() + i], lanes[j % 16]);
    out.push_back(tree_sum(lanes) / total);
  }
  return out;
}

std::vector<float> index_scores_exact(std::span<const float> q, std::span<const float> weights,
                                      std::span<const float> keys, float scale) {
  const std::size_t dims = q.size() / weights.size();
  std::vector<float> scores;
  for (std::size_t p = 0; p < keys.size() / dims; ++p) {
    float sum = 0;
    for (std::size_t h = 0; h < weights.size(); ++h) {
      float dot = 0;
      for (std::size_t i = 0; i < dims; ++i) dot = std::fma(q[h * dims + i], keys[p * dims + i], dot);
      sum = std::fma(weights[h], std::max(0.0F, dot), sum);
    }
    scores.push_back(sum * scale);
  }
  return scores;
}

}  // namespace llorch::engine::compute::reference
