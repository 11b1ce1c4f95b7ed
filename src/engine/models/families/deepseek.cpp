// DeepSeek V2 and V3, and GLM 4.7 Flash: latent attention, routed and shared experts.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/latent.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::deepseek {
namespace {

constexpr std::array kDense = block(mla_attention(), ffn());
constexpr std::array kSparse = block(mla_attention(), moe());
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDense, kSparse};

constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kLatentAttention, kFfnWeights, kRoutedExperts, kPredictorPastLast);
constexpr Predictor kPredictor{.hf_prefix = "", .hands_on_unnormed = true};

constexpr std::array<std::string_view, 1> kGguf{"deepseek2"};
constexpr std::array<std::string_view, 3> kHf{"deepseek_v2", "deepseek_v3", "glm4_moe_lite"};

// Which layers are mixtures; heads and what must hold.
base::Result<> finish(const KeyNames& names, std::uint32_t heads, std::uint32_t dense_layers, ModelConfig& config) {
  for (std::size_t n = 0; n < config.layers.size(); ++n)
    config.layers[n].layer_template = n >= dense_layers && config.moe.experts != 0 ? 1 : 0;
  return finish_latent(names, heads, config);
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_latent(keys, config));
  const std::uint32_t dense_layers = TRY(keys.number_or("leading_dense_block_count", 0));
  if (dense_layers != 0) TRY(read_gguf_ffn(keys, config));
  if (dense_layers < config.layers.size()) TRY(read_gguf_routed_experts(keys, config, plan::MoeGate::kSoftmax));
  TRY(finish(keys.names(), TRY(keys.count("attention.head_count")), dense_layers, config));
  return config;
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  const bool is_v3 = config.architecture != "deepseek_v2";
  const std::string_view method = TRY(keys.text().string_or("topk_method", is_v3 ? "noaux_tc" : "greedy"));
  TRY(demand_word(keys, "scoring_func", is_v3 ? "sigmoid" : "softmax"));
  const bool grouped = method == (is_v3 ? "noaux_tc" : "group_limited_greedy");
  if (!grouped && (is_v3 || method != "greedy")) {
    return impossible(keys.key("topk_method"), std::string(method),
                      is_v3 ? "must be noaux_tc" : "must be greedy or group_limited_greedy");
  }
  const bool is_glm = config.architecture == "glm4_moe_lite";
  HfExpertKeys names{.scale_absent = is_glm ? 1.8F : is_v3 ? 2.5F : 1.0F};
  if (is_v3 && !is_glm) names.groups_absent = 8, names.groups_used_absent = 4;
  TRY(read_hf_routed_experts(keys, config, names, grouped));
  if (is_v3) return {};
  config.moe.gate = plan::MoeGate::kSoftmax;
  config.moe.norm_topk = false;
  config.moe.group_score = plan::GroupScore::kMax;
  return {};
}

// By mlp_layer_types (5), which has the dense layers first here, else by their number.
base::Result<std::uint32_t> read_hf_dense_layers(const HfKeys& keys, const ModelConfig& config) {
  const std::size_t layers = config.layers.size();
  if (!keys.has("mlp_layer_types")) {
    const std::uint32_t absent = config.architecture == "glm4_moe_lite" ? 1
                                 : config.architecture == "deepseek_v3" ? 3
                                                                        : 0;
    return keys.number_or("first_k_dense_replace", absent);
  }
  const std::vector<bool> sparse = TRY(read_hf_mlp_layer_types(keys, layers));
  const auto first = std::ranges::find(sparse, true);
  if (std::find(first, sparse.end(), false) != sparse.end())
    return impossible(keys.key("mlp_layer_types"), "dense", "dense layers must come before all others here");
  return static_cast<std::uint32_t>(first - sparse.begin());
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const bool is_glm = TRY(text_model_type(keys.root())) == "glm4_moe_lite";
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = is_glm ? 1e-5F : 1e-6F}));
  TRY(read_hf_latent(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(demand_latent_weights(keys, config));
  const std::uint32_t dense_layers = TRY(read_hf_dense_layers(keys, config));
  if (dense_layers != 0) TRY(read_hf_ffn(keys, config));
  // A model without mixtures may say how they would be.
  if (dense_layers < config.layers.size() || keys.has("n_routed_experts")) TRY(read_hf_experts(keys, config));
  TRY(finish(keys.names(), TRY(keys.count("num_attention_heads")), dense_layers, config));
  return config;
}

}  // namespace

const Family kDeepseek{
    .name = "deepseek",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .predictor = &kPredictor,
    .ignores_layers_past_end = true,
    .gguf_others = "attention.head_count_kv attention.key_length attention.value_length",
    .hf_others =
        "num_nextn_predict_layers ep_size moe_layer_freq=1 intermediate_size partial_rotary_factor=1 "
        "rope_parameters.partial_rotary_factor=1",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::deepseek
