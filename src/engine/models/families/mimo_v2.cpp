// MiMo V2: more key heads, and sinks, in layers with a window; values of another size, which are scaled.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models::families::mimo_v2 {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

constexpr std::array kSinks{
    optional_row(AttentionSlot::kSinks, "blk.{}.attn_sinks.weight", "layers.{}.self_attn.attention_sink_bias"),
    optional_row(AttentionSlot::kSinks, "", "layers.{}.self_attn.sinks"),
};
constexpr std::array kPredictorWeights{
    row(NormVariant::kFfn, "", "layers.{}.pre_mlp_layernorm.weight"),
    row(plan::PredictorInputSlot::kEmbeddingNorm, "", "layers.{}.enorm.weight"),
    row(plan::PredictorInputSlot::kHiddenNorm, "", "layers.{}.hnorm.weight"),
    row(plan::PredictorInputSlot::kWeight, "", "layers.{}.eh_proj.weight"),
    row(NormVariant::kPredictor, "", "layers.{}.final_layernorm.weight"),
};
constexpr auto kFusedWeights =
    fused_qkv(Source("layers.{}.self_attn.qkv_proj.weight", Load::kPieces, AttentionSlot::kQ, AttentionSlot::kV));
constexpr Predictor kPredictor{.hf_prefix = "model.mtp."};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kFusedWeights, kQkvBiases, kSinks,
                                 kFfnWeights, kRoutedExperts, kPredictorWeights);
constexpr std::array<std::string_view, 1> kGguf{"mimo2"};
constexpr std::array<std::string_view, 2> kHf{"mimo_v2_flash", "mimo_v2"};

// Lists have entries of the layers that predict, too.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_windows(keys, {}, config));
  config.ropes.push_back(config.ropes[0]);
  config.ropes[1].base = TRY(keys.real_or("rope.freq_base_swa", static_cast<float>(config.ropes[0].base)));
  TRY(check_rope(config.ropes[1], config.attention.d_qk, keys.names()));
  config.attention.value_scale = TRY(keys.real_or("attention.value_scale", 0));
  TRY(read_gguf_ffn(keys, config));
  TRY(read_gguf_routed_experts(keys, config));
  config.moe.norm_topk = TRY(keys.flag_or("expert_weights_norm", true));
  TRY(drop_gguf_prediction_layers(keys, config));
  for (std::uint32_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    layer.rope = layer.window != 0 ? 1 : 0;
    const bool sparse = keys.files().find_tensor(tensor_name("blk.{}.ffn_gate_inp.weight", n)) != nullptr;
    layer.layer_template = sparse ? kSparse : kDense;
  }
  return config;
}

// By default the first layer and every sixth see all positions. transformers counts a row in its own window, Xiaomi's
// sliding_window_size does not.
base::Result<> read_windows(const HfKeys& keys, ModelConfig& config) {
  std::uint32_t window = TRY(read_hf_window(keys, 129));
  if (keys.has("sliding_window_size")) window = TRY(keys.count("sliding_window_size")) + 1;
  const bool own = keys.has("hybrid_layer_pattern");
  const auto flags =
      own ? TRY(keys.per_layer("hybrid_layer_pattern", config.layers.size())) : std::vector<std::uint32_t>();
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    const bool windowed = own     ? flags[n] != 0
                          : types ? (*types)[n] == HfLayerType::kWindow
                                  : n != 0 && (n + 1) % 6 != 0;
    if (!windowed) continue;
    layer.window = window;
    layer.heads = TRY(keys.count_or("swa_num_attention_heads", layer.heads));
    layer.kv_heads = TRY(keys.count_or("swa_num_key_value_heads", 2 * layer.kv_heads));
  }
  return {};
}

base::Result<> read_mixtures(const HfKeys& keys, ModelConfig& config) {
  if (keys.has("mlp_layer_types")) return read_hf_dense_first(keys, {}, config);
  const bool own = keys.has("moe_layer_freq");
  const auto flags = own ? TRY(keys.per_layer("moe_layer_freq", config.layers.size())) : std::vector<std::uint32_t>();
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    layer.layer_template = (own ? flags[n] != 0 : n != 0) ? kSparse : kDense;
    if (layer.layer_template == kDense) layer.ffn = TRY(keys.count("intermediate_size"));
  }
  return {};
}

// Layers with a window have a base of their own, which transformers keeps in a dictionary of theirs.
base::Result<> read_ropes(const HfKeys& keys, ModelConfig& config) {
  TRY(read_hf_rope_by_window(keys, plan::RopeLayout::kHalf,
                             {.theta_absent = 5e6, .partial = true, .partial_absent = 0.334F}, config));
  constexpr std::string_view kBase = "swa_rope_theta";
  if (keys.has("rope_parameters") && !keys.has(kBase)) return {};
  config.ropes[1].base = TRY(check_positive(keys.key(kBase), TRY(keys.text().f32_or(kBase, 10000))));
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const std::string_view eps_key = keys.has("layernorm_epsilon") ? "layernorm_epsilon" : "rms_norm_eps";
  const HfDefaults defaults{.head_dim = 192, .eps = 1e-5F, .eps_key = eps_key};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  config.attention.d_v = TRY(keys.count_or("v_head_dim", 128));
  config.attention.value_scale =
      keys.text().is_null("attention_value_scale") ? 0 : TRY(keys.text().f32_or("attention_value_scale", 0.707F));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  // V2.5: one matrix, which the tensors' names say too.
  constexpr std::string_view kLayout = "attention_projection_layout";
  if (TRY(keys.text().string_or(kLayout, "split")) != "fused_qkv") TRY(demand_word(keys, kLayout, "split"));
  TRY(demand_word(keys, "scoring_func", "sigmoid"));
  TRY(demand_number(keys, "swa_head_dim", config.attention.d_qk));
  TRY(demand_number(keys, "swa_v_head_dim", config.attention.d_v));
  TRY(demand_qkv_biases(keys, config));
  TRY(read_windows(keys, config));
  TRY(read_mixtures(keys, config));
  TRY(read_hf_routed_experts(keys, config));
  TRY(read_ropes(keys, config));
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
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .predictor = &kPredictor,
    .ignores_layers_past_end = true,
    .hf_others =
        "add_full_attention_sink_bias=false add_swa_attention_sink_bias=true attention_chunk_size hybrid_block_size "
        "moe_router_dtype num_nextn_predict_layers processor_config topk_method=\"noaux_tc\" vision_model_type",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::mimo_v2
