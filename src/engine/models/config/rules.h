#pragma once
// Rules that numbers of either format obey. Errors are CONFIG_KEY_INVALID with key, value and the rule that is broken.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/models/config/model_config.h"

namespace llorch::engine::models {

tl::unexpected<base::Error> impossible(std::string_view key, const std::string& value, std::string_view rule);

// 1..value_max
base::Result<std::uint32_t> check_count(std::string_view key, std::uint32_t value,
                                        std::uint32_t value_max = kDimensionMax);
// Positive and finite.
base::Result<float> check_positive(std::string_view key, float value);
// 0 (inclusive) to 1.
base::Result<float> check_eps(std::string_view key, float value);

// What a key is called in the format at hand, for the messages of checks that see only numbers.
struct KeyNames {
  std::string heads, kv_heads, rope_dims, rope_base, rope_factor, rope_original;
};
// Heads divide, head sizes times heads are in bounds, rotations are even and no wider than a head, window and head counts
// fit their layers. Also sets what follows from them: the scale of attention when it is 0 (1/sqrt(d_qk)).
base::Result<> finish_attention(ModelConfig& config, const KeyNames& names);
base::Result<> check_rope(const RopeConfig& rope, std::uint32_t head_size, const KeyNames& names);

// Of families whose layers are dense ones or mixtures.
struct SparseLayerTemplates {
  std::uint8_t dense = 0;
  std::uint8_t sparse = 1;
};

struct MambaKeyNames {
  std::string heads, groups;
};
// Groups divide heads and the inner width, at least two taps, all sums in bounds.
base::Result<> check_mamba(const MambaConfig& mamba, const MambaKeyNames& names);
// Key heads divide value heads, sums in bounds.
base::Result<> check_delta(const DeltaConfig& delta, std::string_view heads_key);
// A convolution over at least two positions.
base::Result<> check_taps(std::string_view key, std::uint32_t taps);
// The k experts exist; groups divide the experts.
base::Result<> check_moe(const MoeConfig& moe, std::string_view groups_key);

// Heads divide the tower's width into heads of whole axes, extractions name blocks and decoder layers that exist, sizes are
// in bounds. REQUIRES: `config` is complete but for its vocabulary.
base::Result<> check_vision(const ModelConfig& config, std::string_view heads_key, std::string_view extractions_key);

// 0.1 k ln(factor) + 1, at least 1: what yarn multiplies cos and sin with (arXiv 2309.00071, with k as later models have it).
double yarn_magnitude(double k, double factor);

}  // namespace llorch::engine::models
