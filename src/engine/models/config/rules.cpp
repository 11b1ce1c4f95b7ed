#include "engine/models/config/rules.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/models/portable_math.h"

namespace llorch::engine::models {

using base::Result;

tl::unexpected<base::Error> impossible(std::string_view key, const std::string& value, std::string_view rule) {
  return base::fail(base::ErrorCode::kConfigKeyInvalid, fmt::format("{} = {}: {}", key, value, rule));
}

Result<std::uint32_t> check_count(std::string_view key, std::uint32_t value, std::uint32_t value_max) {
  if (value == 0 || value > value_max)
    return impossible(key, fmt::to_string(value), fmt::format("must be 1..{}", value_max));
  return value;
}

Result<float> check_positive(std::string_view key, float value) {
  if (!(value > 0) || std::isinf(value)) return impossible(key, fmt::format("{}", value), "must be positive");
  return value;
}

Result<float> check_eps(std::string_view key, float value) {
  if (!(value >= 0.0F && value < 1.0F)) return impossible(key, fmt::format("{}", value), "must be 0..1");
  return value;
}

Result<> check_rope(const RopeConfig& rope, std::uint32_t head_size, const KeyNames& names) {
  if (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > head_size)
    return impossible(names.rope_dims, fmt::to_string(rope.dims), fmt::format("must be even and 2..{}", head_size));
  if (!(rope.base >= 1.0)) return impossible(names.rope_base, fmt::format("{}", rope.base), "must be at least 1");
  if (!(rope.factor > 0.0)) return impossible(names.rope_factor, fmt::format("{}", rope.factor), "must be positive");
  const bool needs_original =
      rope.kind == RopeKind::kLlama3 || rope.kind == RopeKind::kYarn || !rope.divisors_long.empty();
  if (needs_original && rope.original_context == 0)
    return impossible(names.rope_original, "0", "this kind of rotation scaling needs the original context");
  if (rope.kind == RopeKind::kYarn && rope.base <= 1.0)
    return impossible(names.rope_base, fmt::format("{}", rope.base), "must be above 1 for yarn");
  if (rope.kind == RopeKind::kYarn && !(rope.beta_fast > 0 && rope.beta_slow > 0))
    return impossible("beta_fast, beta_slow", fmt::format("{}, {}", rope.beta_fast, rope.beta_slow),
                      "must be positive");
  if (rope.kind == RopeKind::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor && rope.low_freq_factor > 0)) {
    return impossible("high_freq_factor", fmt::format("{}", rope.high_freq_factor),
                      fmt::format("must be above low_freq_factor = {}, and that positive", rope.low_freq_factor));
  }
  return {};
}

Result<> finish_attention(ModelConfig& config, const KeyNames& names) {
  AttentionConfig& a = config.attention;
  for (const LayerConfig& layer : config.layers) {
    if (layer.heads == 0) continue;
    if (layer.kv_heads == 0 || layer.heads % layer.kv_heads != 0) {
      return impossible(names.kv_heads, fmt::to_string(layer.kv_heads),
                        fmt::format("must divide {} = {}", names.heads, layer.heads));
    }
    const std::uint32_t d_qk = layer.d_head != 0 ? layer.d_head : a.d_qk;
    for (const std::uint32_t d : {d_qk, layer.d_head != 0 ? layer.d_head : a.d_v}) {
      if (std::uint64_t{layer.heads} * d > kDimensionMax) {
        return impossible(names.heads, fmt::to_string(layer.heads),
                          fmt::format("heads times head size must be at most {}", kDimensionMax));
      }
    }
    if (layer.rope != kNoRope) TRY(check_rope(config.ropes[layer.rope], d_qk, names));
  }
  if (a.scale == 0) a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.d_qk)));
  return {};
}

Result<> check_taps(std::string_view key, std::uint32_t taps) {
  if (taps < 2 || taps > 64) return impossible(key, fmt::to_string(taps), "must be 2..64");
  return {};
}

Result<> check_mamba(const MambaConfig& m, const MambaKeyNames& names) {
  if (m.heads % m.groups != 0)
    return impossible(names.groups, fmt::to_string(m.groups), fmt::format("must divide {} = {}", names.heads, m.heads));
  TRY(check_taps("conv_kernel", m.d_conv));
  if (std::uint64_t{m.heads} * m.d_head != m.d_inner) {
    return impossible(names.heads, fmt::to_string(m.heads),
                      fmt::format("times the head size {} must be the inner size {}", m.d_head, m.d_inner));
  }
  const std::uint64_t rows = 2ULL * m.d_inner + 2ULL * m.groups * m.d_state + m.heads;
  if (std::uint64_t{m.groups} * m.d_state > kDimensionMax || rows > kDimensionMax) {
    return impossible(names.groups, fmt::to_string(m.groups),
                      fmt::format("the projection would have {} rows; at most {} are supported", rows, kDimensionMax));
  }
  if (!(m.dt_min >= 0 && m.dt_max > m.dt_min)) {
    return impossible("time_step_limit", fmt::format("[{}, {}]", m.dt_min, m.dt_max),
                      "must be two numbers, the second above the first");
  }
  return {};
}

Result<> check_delta(const DeltaConfig& d, std::string_view heads_key) {
  if (d.value_heads % d.key_heads != 0) {
    return impossible(heads_key, fmt::to_string(d.value_heads),
                      fmt::format("must be a multiple of the {} key heads", d.key_heads));
  }
  TRY(check_taps("conv_kernel", d.d_conv));
  const std::uint64_t rows = 2 * std::uint64_t{d.key_heads} * d.d_k + 2 * std::uint64_t{d.value_heads} * d.d_v;
  if (rows > kDimensionMax) {
    return impossible(heads_key, fmt::to_string(d.value_heads),
                      fmt::format("the projection would have {} rows; at most {} are supported", rows, kDimensionMax));
  }
  return {};
}

Result<> check_moe(const MoeConfig& moe, std::string_view groups_key) {
  if (moe.groups == 0) return {};
  if (moe.experts % moe.groups != 0) {
    return impossible(groups_key, fmt::to_string(moe.groups), fmt::format("must divide the {} experts", moe.experts));
  }
  if (moe.groups_used == 0 || moe.groups_used > moe.groups) {
    return impossible("topk_group", fmt::to_string(moe.groups_used), fmt::format("must be 1..{}", moe.groups));
  }
  if (std::uint64_t{moe.groups_used} * (moe.experts / moe.groups) < moe.experts_used) {
    return impossible("topk_group", fmt::to_string(moe.groups_used),
                      fmt::format("its groups hold fewer than the {} experts to choose", moe.experts_used));
  }
  return {};
}

Result<> check_vision(const ModelConfig& config, std::string_view heads_key, std::string_view extractions_key) {
  const VisionConfig& v = config.vision;
  if (v.width % v.heads != 0 || v.width / v.heads % 4 != 0) {
    return impossible(heads_key, fmt::to_string(v.heads),
                      fmt::format("must divide the tower's width {} into heads of a multiple of 4", v.width));
  }
  const std::uint64_t joined = std::uint64_t{v.merge} * v.merge * v.width;
  const std::uint64_t patch_row = std::uint64_t{3} * v.temporal * v.patch * v.patch;
  if (joined > kDimensionMax || patch_row > kDimensionMax) {
    return impossible("the sizes of a patch",
                      fmt::format("{} pixels, {} frames, merged by {}", v.patch, v.temporal, v.merge),
                      fmt::format("rows of at most {} are supported", kDimensionMax));
  }
  if (v.extractions.size() > config.layers.size()) {
    return impossible(extractions_key, fmt::format("{} blocks", v.extractions.size()),
                      fmt::format("must be at most the {} layers of the decoder", config.layers.size()));
  }
  for (const VisionConfig::Extraction& extraction : v.extractions) {
    if (extraction.layer >= v.depth) {
      return impossible(extractions_key, fmt::to_string(extraction.layer),
                        fmt::format("must be a block of the tower, 0..{}", v.depth - 1));
    }
  }
  return {};
}

double yarn_magnitude(double k, double factor) { return factor <= 1 ? 1.0 : 0.1 * k * portable_log(factor) + 1.0; }

}  // namespace llorch::engine::models
