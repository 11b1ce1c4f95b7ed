#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/models/config/model_config.h"
#include "engine/plan/params.h"

namespace llorch::engine::models {

// A rotation table before it is on a device; plan::RopeTable says how kernels use it.
struct RopeTableData {
  std::vector<float> inv_freq;  // [R/2]
  float attn_factor = 1.0F;
};

// inv_freq[i] = f(base^(-2i/R)) / divisors[i] with f by RopeKind, in f64, rounded once. `divisors` is empty or has R/2
// positive entries.
// Errors: WEIGHT_SHAPE_MISMATCH (another number of divisors), CONFIG_KEY_INVALID (a divisor not positive and finite).
base::Result<RopeTableData> make_rope_table(const RopeConfig& rope, const std::vector<float>& divisors);

// All tables of a model: each rotation's own, followed by its long one when it has one.
base::Result<std::vector<RopeTableData>> make_rope_tables(const std::vector<RopeConfig>& ropes);

// Where a layer's tables stand in that list.
struct RopeTableIds {
  std::uint32_t table = plan::kNoRopeTable;
  std::uint32_t long_table = plan::kNoRopeTable;
};
RopeTableIds rope_table_ids(const std::vector<RopeConfig>& ropes, std::uint8_t rope);

// A slot whose length may pass this many positions uses the long tables; 0 = there are none.
std::uint32_t long_rope_context(const std::vector<RopeConfig>& ropes);

}  // namespace llorch::engine::models
