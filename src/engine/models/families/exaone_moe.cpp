// K-EXAONE: norms of heads; windows rotate, whole contexts beside them do not; dense first, then experts that a sigmoid chooses.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::exaone_moe {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};
constexpr std::array kSelection{
    optional_row(MoeSlot::kSelectionBias, "", "layers.{}.mlp.e_score_correction_bias"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kHeadNorms, kFfnWeights, kSelection, kRoutedExperts);
constexpr std::array<std::string_view, 1> kGguf{"exaone-moe"};
constexpr std::array<std::string_view, 1> kHf{"exaone_moe"};
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};

// In a model without a window all layers rotate.
void unrotate(std::uint32_t window, ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    if (window != 0 && layer.window == 0) layer.rope = kNoRope;
  }
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_windows(keys, {.period_absent = 4}, config));
  unrotate(TRY(keys.number_or("attention.sliding_window", 0)), config);
  TRY(read_gguf_ffn(keys, config));
  TRY(read_gguf_routed_experts(keys, config));
  TRY(read_gguf_dense_first(keys, {}, config));
  return config;
}

base::Result<> read_windows(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  if (window == 0 || keys.has("layer_types")) return read_hf_layer_windows(keys, window, config);
  const std::uint32_t period = TRY(keys.count_or("sliding_window_pattern", 4));
  for (std::size_t n = 0; n < config.layers.size(); ++n) config.layers[n].window = (n + 1) % period != 0 ? window : 0;
  return {};
}

base::Result<> read_mixtures(const HfKeys& keys, ModelConfig& config) {
  TRY(read_hf_dense_first(keys, {}, config));
  if (keys.has("mlp_layer_types") || keys.has("first_k_dense_replace")) return {};
  config.layers[0].layer_template = kDense;
  config.layers[0].ffn = TRY(keys.count("intermediate_size"));
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = 1e-5F}));
  TRY(read_hf_heads(keys, {.kv_heads = 32}, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(refuse_if(keys, "attention_bias"));
  TRY(read_windows(keys, config));
  TRY(read_mixtures(keys, config));
  TRY(read_hf_routed_experts(keys, config, {.shared = "num_shared_experts", .shared_absent = 1, .scale_absent = 2.5F}));
  TRY(demand_word(keys, "scoring_func", "sigmoid"));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  unrotate(TRY(read_hf_window(keys, 4096)), config);
  return config;
}

}  // namespace

const Family kExaoneMoe{
    .name = "exaone_moe",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .ignores_layers_past_end = true,
    .hf_others = "first_k_dense_replace num_nextn_predict_layers sliding_window_pattern topk_method=\"noaux_tc\"",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::exaone_moe
