// MiMo V2: twice the key heads and sinks in layers with a window, values of another size, which are scaled.
#include <algorithm>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::mimo_v2 {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

constexpr std::array kSinks{
    optional_row(AttentionSlot::kSinks, "", "layers.{}.self_attn.attention_sink_bias"),
    optional_row(AttentionSlot::kSinks, "", "layers.{}.self_attn.sinks"),
};
constexpr std::array kPredictorWeights{
    row(NormVariant::kFfn, "", "layers.{}.pre_mlp_layernorm.weight"),
    row(plan::PredictorInputSlot::kEmbeddingNorm, "", "layers.{}.enorm.weight"),
    row(plan::PredictorInputSlot::kHiddenNorm, "", "layers.{}.hnorm.weight"),
    row(plan::PredictorInputSlot::kWeight, "", "layers.{}.eh_proj.weight"),
    row(NormVariant::kPredictor, "", "layers.{}.final_layernorm.weight"),
};
constexpr Predictor kPredictor{.hf_prefix = "model.mtp."};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kQkvBiases, kSinks, kFfnWeights,
                                 kRoutedExperts, kPredictorWeights);
constexpr std::array<std::string_view, 2> kHf{"mimo_v2_flash", "mimo_v2"};

// The class doubles the key heads of layers with a window, whatever else the file says of them.
base::Result<> read_layers(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t window =
      TRY(keys.has("sliding_window_size") ? keys.count("sliding_window_size") : read_hf_window(keys, 129)) +
      (keys.has("sliding_window_size") ? 1 : 0);
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : n != 0 && (n + 1) % 6 != 0;
    if (!windowed) continue;
    config.layers[n].window = window;
    config.layers[n].kv_heads *= 2;
  }
  if (keys.has("mlp_layer_types")) return read_hf_dense_first(keys, {.dense = kDense, .sparse = kSparse}, config);
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  config.layers[0].layer_template = kDense;
  config.layers[0].ffn = TRY(keys.count("intermediate_size"));
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.head_dim = 192, .eps = 1e-5F};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  config.attention.d_v = TRY(keys.count_or("v_head_dim", 128));
  config.attention.value_scale =
      keys.text().is_null("attention_value_scale") ? 0 : TRY(keys.text().f32_or("attention_value_scale", 0.707F));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_if(
      keys, "attention_bias", false, Opcode::kMultiheadAttention,
      {slot_number(AttentionSlot::kQBias), slot_number(AttentionSlot::kKBias), slot_number(AttentionSlot::kVBias)},
      config));
  TRY(read_layers(keys, config));
  TRY(read_hf_routed_experts(keys, config));
  TRY(read_hf_rope_by_window(keys, plan::RopeLayout::kHalf, {.partial = true, .partial_absent = 0.334F}, config));
  // Of the layers that predict, which have windows and are dense, whatever the last layer is.
  const auto windowed = std::ranges::find_if(config.layers, [](const LayerConfig& l) { return l.window != 0; });
  if (windowed == config.layers.end()) return config;
  config.predictor_layer = *windowed;
  config.predictor_layer->layer_template = kDense;
  config.predictor_layer->ffn = TRY(keys.count("intermediate_size"));
  return config;
}

}  // namespace

const Family kMimoV2{
    .name = "mimo_v2",
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .predictor = &kPredictor,
    .hf_prefixes = kPrefixes,
    .ignores_layers_past_end = true,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::mimo_v2
