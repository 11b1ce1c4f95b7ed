#include "engine/models/portable_math.h"

#include <cmath>
#include <numbers>

namespace llorch::engine::models {

// By 2 artanh((m-1)/(m+1)) for the mantissa m in [sqrt(1/2), sqrt(2)): the 12th term is below 2^-60.
double portable_log(double x) {
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

// By halving the range to |r| <= ln2/2 and 18 Taylor terms (the next is below 2^-80).
double portable_exp(double y) {
  const double n = std::nearbyint(y / std::numbers::ln2);
  const double r = y - n * std::numbers::ln2;
  double sum = 1;
  for (int k = 18; k >= 1; --k) sum = 1 + sum * r / k;
  return std::ldexp(sum, static_cast<int>(n));
}

double portable_pow(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }

}  // namespace llorch::engine::models
