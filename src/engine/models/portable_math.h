#pragma once
// Elementary functions in f64 without libm, whose results may differ by a bit between CPUs. Within 1e-14 relative, the
// same bits on every IEEE machine.

namespace llorch::engine::models {

double portable_log(double x);                      // REQUIRES: x > 0 and finite
double portable_exp(double y);                      // REQUIRES: |y| < 700
double portable_pow(double base, double exponent);  // REQUIRES: base > 0

}  // namespace llorch::engine::models
