#include "engine/models/rope.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

namespace llorch::engine::models {
namespace {

// ln x by 2 artanh((m-1)/(m+1)) for the mantissa m in [sqrt(1/2), sqrt(2)): the 12th term is below 2^-60.
double natural_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int k = 12; k >= 0; --k) sum = sum * s * s + 1.0 / (2 * k + 1);
  return 2 * s * sum + exponent * std::numbers::ln2;
}

// e^y by halving the range to |r| <= ln2/2 and 18 Taylor terms (the next is below 2^-80).
double exponential(double y) {
  const double n = std::nearbyint(y / std::numbers::ln2);
  const double r = y - n * std::numbers::ln2;
  double sum = 1;
  for (int k = 18; k >= 1; --k) sum = 1 + sum * r / k;
  return std::ldexp(sum, static_cast<int>(n));
}

}  // namespace

double portable_pow(double base, double exponent) { return exponential(exponent * natural_log(base)); }

base::Result<RopeTableData> make_rope_table(const RopeConfig& rope, std::span<const float> divisors) {
  const std::uint32_t half = rope.dims / 2;
  if (!divisors.empty() && divisors.size() != half) {
    return base::fail(base::ErrorCode::kWeightShapeMismatch,
                      fmt::format("rope_freqs.weight has {} entries; the rotation has {}", divisors.size(), half));
  }
  RopeTableData table;
  table.inv_freq.reserve(half);
  for (std::uint32_t i = 0; i < half; ++i) {
    const double divisor = divisors.empty() ? 1.0 : divisors[i];
    if (!(divisor > 0) || std::isinf(divisor)) {
      return base::fail(base::ErrorCode::kConfigKeyInvalid,
                        fmt::format("rope_freqs.weight[{}] = {} is not positive", i, divisor));
    }
    const double frequency = portable_pow(rope.base, -2.0 * i / rope.dims);
    table.inv_freq.push_back(static_cast<float>(frequency / rope.factor / divisor));
  }
  return table;
}

base::Result<std::vector<float>> read_rope_divisors(const io::GgufFile& file) {
  const io::GgufTensor* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>{};
  if (tensor->dtype != contract::DType::kF32) {
    return base::fail(base::ErrorCode::kWeightDTypeUnsupported,
                      fmt::format("rope_freqs.weight is {}; it must be F32", contract::dtype_info(tensor->dtype).name));
  }
  std::vector<float> divisors(tensor->data.size() / sizeof(float));
  std::memcpy(divisors.data(), tensor->data.data(), divisors.size() * sizeof(float));
  return divisors;
}

}  // namespace llorch::engine::models
