#pragma once
// The limits that micro benches hold kernels against.
#include <algorithm>

#include "cli/bench/probes.h"
#include "engine/compute/cpu/kernels.h"

namespace llorch::bench {

// Multiply-adds per second of one thread, from registers; the best of several: other programs only ever take away.
inline double peak_rate(engine::compute::cpu::host::Isa isa, bool quantized) {
  const auto product = quantized ? cli::bench::Product::kInteger : cli::bench::Product::kFloat;
  double best = 0;
  for (int i = 0; i < 9; ++i)
    best = std::max(best, cli::bench::multiply_adds_per_s(engine::compute::cpu::host::isa_name(isa), product, 1));
  return best;
}

}  // namespace llorch::bench
