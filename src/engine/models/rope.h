#pragma once
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/io/gguf.h"
#include "engine/models/config.h"

namespace llorch::engine::models {

// A rotation table before it is on a device; contract::RopeTable says how kernels use it.
struct RopeTableData {
  std::vector<float> inv_freq;  // [R/2]
  float attn_factor = 1.0F;
};

// inv_freq[i] = base^(-2i/R) / factor / divisors[i], in f64, rounded once. `divisors` is empty or has R/2 positive entries
// (llama-3 scaling as GGUF stores it). Made without libm, whose pow may differ by a bit between CPUs.
// Errors: WEIGHT_SHAPE_MISMATCH, CONFIG_KEY_INVALID (a divisor that is not positive and finite).
base::Result<RopeTableData> make_rope_table(const RopeConfig& rope, std::span<const float> divisors);

// The divisors in rope_freqs.weight; empty when the file has none. Errors: WEIGHT_DTYPE_UNSUPPORTED (not F32).
base::Result<std::vector<float>> read_rope_divisors(const io::GgufFile& file);

// base^exponent for base > 0, within 1e-14 relative, the same bits on every IEEE machine.
double portable_pow(double base, double exponent);

}  // namespace llorch::engine::models
