// Granite, dense, and Granite SWA: multipliers everywhere; windows, sinks and a base of the rotation for each layer.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/granite.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {

base::Result<> read_gguf_multipliers(const GgufKeys& keys, ModelConfig& config) {
  config.embedding_scale = TRY(keys.real_or("embedding_scale", 1));
  config.residual_scale = TRY(keys.real_or("residual_scale", 1));
  config.logit_mul = 1 / TRY(check_positive(keys.key("logit_scale"), TRY(keys.real_or("logit_scale", 1))));
  if (TRY(keys.flag_or("rope.scaling.finetuned", true))) return {};
  for (LayerConfig& layer : config.layers) layer.rope = kNoRope;
  return {};
}

base::Result<> read_hf_multipliers(const HfKeys& keys, ModelConfig& config) {
  config.attention.scale = TRY(keys.text().f32_or("attention_multiplier", 1));
  config.embedding_scale = TRY(keys.text().f32_or("embedding_multiplier", 1));
  config.residual_scale = TRY(keys.text().f32_or("residual_multiplier", 1));
  const float divisor = TRY(keys.text().f32_or("logits_scaling", 1));
  config.logit_mul = 1 / TRY(check_positive(keys.key("logits_scaling"), divisor));
  return {};
}

}  // namespace llorch::engine::models::families

namespace llorch::engine::models::families::granite {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr std::array kSinks{
    optional_row(AttentionSlot::kSinks, "blk.{}.attn_sinks.weight", "layers.{}.self_attn.sinks"),
};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kSinks, kFfnWeights);
constexpr std::array<std::string_view, 2> kNames{"granite", "granite_swa"};
constexpr std::string_view kSwa = "granite_swa";
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};

void demand_sinks(ModelConfig& config) {
  config.demanded.push_back({Opcode::kMultiheadAttention, slot_number(AttentionSlot::kSinks)});
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  TRY(read_gguf_multipliers(keys, config));
  if (config.architecture != kSwa) return config;
  demand_sinks(config);
  TRY(read_gguf_windows(keys, {}, config));
  const std::vector<std::uint32_t> rotates = TRY(keys.per_layer("attention.rope_pattern", config.layers.size(), 1));
  for (std::size_t n = 0; n < rotates.size(); ++n) {
    if (rotates[n] == 0) config.layers[n].rope = kNoRope;
  }
  return config;
}

// One base of the rotation per layer; 0 is none.
base::Result<> read_hf_bases(const HfKeys& keys, ModelConfig& config) {
  const std::vector<float> bases = TRY(keys.text().f32_list("layer_rope_theta"));
  if (bases.size() != config.layers.size()) {
    return impossible(keys.key("layer_rope_theta"), std::to_string(bases.size()) + " numbers",
                      "must have one for each of " + std::to_string(config.layers.size()) + " layers");
  }
  const RopeConfig rope = config.ropes.front();
  config.ropes.clear();
  for (std::size_t n = 0; n < bases.size(); ++n) {
    config.layers[n].rope = kNoRope;
    if (bases[n] == 0) continue;
    const auto known = std::ranges::find(config.ropes, double{bases[n]}, &RopeConfig::base);
    const auto number = static_cast<std::size_t>(known - config.ropes.begin());
    if (number >= kNoRope) return impossible(keys.key("layer_rope_theta"), "255 bases", "are too many");
    if (known == config.ropes.end()) {
      config.ropes.push_back(rope);
      config.ropes.back().base = bases[n];
    }
    config.layers[n].rope = static_cast<std::uint8_t>(number);
  }
  return finish_attention(config, keys.names());
}

base::Result<> read_hf_swa(const HfKeys& keys, ModelConfig& config) {
  demand_sinks(config);
  const std::uint32_t window = TRY(read_hf_window(keys, 128));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : n % 4 != 0;
    if (windowed) config.layers[n].window = window;
  }
  return keys.has("layer_rope_theta") ? read_hf_bases(keys, config) : base::Result<>();
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const bool is_swa = TRY(text_model_type(keys.root())) == kSwa;
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = is_swa ? 1e-5F : 1e-6F}));
  TRY(demand_attention_biases(keys, config));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(read_hf_multipliers(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  if (is_swa) TRY(read_hf_swa(keys, config));
  return config;
}

}  // namespace

const Family kGranite{
    .name = "granite",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .gguf_others = kGraniteGgufOthers,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::granite
