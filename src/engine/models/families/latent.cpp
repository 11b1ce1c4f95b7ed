#include "engine/models/families/latent.h"

#include <algorithm>
#include <cmath>

namespace llorch::engine::models::families {
namespace {

float latent_scale(const MlaConfig& mla, double magnitude) {
  return static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(mla.d_nope + mla.d_rope)));
}

}  // namespace

base::Result<> read_gguf_latent_sizes(const GgufKeys& keys, ModelConfig& config, const LatentAbsent& absent) {
  MlaConfig& mla = config.mla;
  mla.q_lora = TRY(keys.number_or("attention.q_lora_rank", 0));
  mla.kv_lora = TRY(keys.count("attention.kv_lora_rank"));
  mla.d_rope = TRY(keys.count("rope.dimension_count"));
  // Old files have the head's size where new ones have the latent one's.
  const std::uint32_t d_qk = TRY(keys.has("attention.key_length_mla") ? keys.count("attention.key_length_mla")
                                                                      : keys.count("attention.key_length"));
  const bool named = absent.d_v == 0 || keys.has("attention.value_length");
  mla.d_v = TRY(keys.has("attention.value_length_mla") ? keys.count("attention.value_length_mla")
                : named                                ? keys.count("attention.value_length")
                                                       : base::Result<std::uint32_t>(absent.d_v));
  if (d_qk <= mla.d_rope) {
    return impossible(keys.key("attention.key_length_mla"), std::to_string(d_qk),
                      "must be above rope.dimension_count = " + std::to_string(mla.d_rope));
  }
  mla.d_nope = d_qk - mla.d_rope;
  mla.norm_eps = config.norm_eps;
  mla.scale = latent_scale(mla, 1);
  return {};
}

base::Result<> read_gguf_latent(const GgufKeys& keys, ModelConfig& config, const LatentAbsent& absent) {
  TRY(read_gguf_latent_sizes(keys, config, absent));
  MlaConfig& mla = config.mla;
  RopeConfig rope = TRY(read_gguf_rope(keys, mla.d_rope, absent.original_context));
  double magnitude = 1;
  const float per_log = TRY(keys.real_or("rope.scaling.yarn_log_multiplier", 0));  // 0.1 * mscale_all_dim
  if (rope.kind == RopeKind::kYarn && per_log != 0) {
    magnitude = yarn_magnitude(10.0 * per_log, rope.factor);
    rope.attn_factor = 1.0F;  // mscale / mscale_all_dim, which the converter takes to be equal
  }
  mla.scale = latent_scale(mla, magnitude);
  config.ropes = {std::move(rope)};
  config.attention.rope_layout = plan::RopeLayout::kInterleaved;
  return {};
}

base::Result<> read_hf_latent_sizes(const HfKeys& keys, ModelConfig& config, const LatentAbsent& absent) {
  MlaConfig& mla = config.mla;
  mla.q_lora = TRY(keys.number_or("q_lora_rank", 0));
  mla.kv_lora = TRY(keys.count("kv_lora_rank"));
  mla.d_nope = TRY(keys.count("qk_nope_head_dim"));
  mla.d_rope = TRY(keys.count("qk_rope_head_dim"));
  mla.d_v = TRY(keys.count_or("v_head_dim", absent.d_v));
  mla.norm_eps = kLatentNormEps;
  TRY(demand_number(keys, "num_key_value_heads", TRY(keys.count("num_attention_heads"))));
  mla.scale = latent_scale(mla, 1);
  return {};
}

base::Result<> read_hf_latent(const HfKeys& keys, ModelConfig& config, const LatentAbsent& absent) {
  TRY(read_hf_latent_sizes(keys, config, absent));
  MlaConfig& mla = config.mla;
  // What the class works out for itself.
  TRY(demand_number(keys, "head_dim", mla.d_rope));
  TRY(demand_number(keys, "qk_head_dim", mla.d_nope + mla.d_rope));
  config.ropes = {TRY(read_hf_rope(keys, mla.d_rope, {}))};
  const bool interleaved = TRY(keys.text().boolean_or("rope_interleave", true));
  config.attention.rope_layout = interleaved ? plan::RopeLayout::kInterleaved : plan::RopeLayout::kHalf;
  double magnitude = 1;
  if (const auto rope = TRY(keys.rope_dictionary())) {
    const std::string_view kind = TRY(rope->string_or("rope_type", TRY(rope->string_or("type", "default"))));
    if (kind != "default") {
      const float mscale_all = TRY(rope->f32_or("mscale_all_dim", 0));
      // Of every kind, also where the rotation itself has no use for the factor.
      const double factor = TRY(rope->f32_or("factor", static_cast<float>(config.ropes[0].factor)));
      if (mscale_all != 0) magnitude = yarn_magnitude(mscale_all, factor);
    }
  }
  mla.scale = latent_scale(mla, magnitude);
  return {};
}

base::Result<> demand_latent_weights(const HfKeys& keys, ModelConfig& config) {
  TRY(demand_if(keys, "attention_bias", false, Opcode::kMlaAttention,
                {slot_number(MlaSlot::kKvABias), slot_number(MlaSlot::kOBias)}, config));
  if (config.mla.q_lora != 0) {
    TRY(demand_if(keys, "attention_bias", false, Opcode::kMlaAttention, {slot_number(MlaSlot::kQABias)}, config));
    for (const MlaSlot slot : {MlaSlot::kQA, MlaSlot::kQANorm, MlaSlot::kQB})
      config.demanded.push_back({Opcode::kMlaAttention, slot_number(slot)});
  } else {
    config.demanded.push_back({Opcode::kMlaAttention, slot_number(MlaSlot::kQ)});
  }
  return {};
}

base::Result<> finish_latent(const KeyNames& names, std::uint32_t heads, ModelConfig& config) {
  const MlaConfig& mla = config.mla;
  for (LayerConfig& layer : config.layers) {
    layer.heads = layer.kv_heads = heads;
    layer.rope = config.ropes.empty() ? kNoRope : 0;
  }
  const std::uint64_t widest = std::max(std::uint64_t{mla.d_nope} + mla.d_rope, std::uint64_t{mla.d_v});
  if (heads * std::max<std::uint64_t>(widest, mla.kv_lora) > kDimensionMax) {
    return impossible(names.heads, std::to_string(heads),
                      "heads times head size must be at most " + std::to_string(kDimensionMax));
  }
  return config.ropes.empty() ? base::Result<>{} : check_rope(config.ropes[0], mla.d_rope, names);
}

}  // namespace llorch::engine::models::families
