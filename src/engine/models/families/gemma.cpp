// Gemma 2 and 3: norms before and behind each branch, windows, caps. EmbeddingGemma is a Gemma 3 whose rows see later ones.
#include <cmath>

#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::gemma {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBetweenNorms};

constexpr auto kGemma2Weights =
    concat(kGlobalWeights, kNormsOnBothSides, kAttentionWeights, kAttentionBiases, kFfnWeights);
constexpr auto kGemma3Weights =
    concat(kGlobalWeights, kNormsOnBothSides, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights);

constexpr std::array<std::string_view, 1> kGemma2Names{"gemma2"};
constexpr std::array<std::string_view, 2> kGemma3Gguf{"gemma3", "gemma-embedding"};
constexpr std::array<std::string_view, 2> kGemma3Hf{"gemma3", "gemma3_text"};

float inverse_root(double x) { return static_cast<float>(1.0 / std::sqrt(x)); }

// The 27B models scale by the width per head, which GGUF has no key for: their depth tells.
constexpr std::size_t kGemma2LargeLayers = 46;
constexpr std::size_t kGemma3LargeLayers = 62;

base::Result<ModelConfig> read_gguf(const GgufKeys& keys, std::size_t large_layers, const GgufWindowRules& windows) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  if (!keys.has("attention.scale") && config.layers.size() == large_layers) {
    // The width is a multiple of the heads in both.
    config.attention.scale = inverse_root(static_cast<double>(config.width) / config.layers[0].heads);
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.ffn.activation = plan::Activation::kGeluTanh;
  TRY(read_gguf_windows(keys, windows, config));
  return config;
}

base::Result<ModelConfig> read_gguf_gemma2(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf(keys, kGemma2LargeLayers, {.window_absent = 4096, .period_absent = 2}));
  // Files of the first converter have no keys for the caps.
  config.attention.logit_softcap = TRY(keys.real_or("attn_logit_softcapping", 50.0F));
  config.logit_softcap = TRY(keys.real_or("final_logit_softcapping", 30.0F));
  return config;
}

// Its files name the width of a window, of which half is on either side and the row itself between.
void see_both_sides(ModelConfig& config) {
  config.attention.causal = false;
  for (LayerConfig& layer : config.layers) layer.window = layer.window != 0 ? layer.window / 2 + 1 : 0;
}

base::Result<ModelConfig> read_gguf_gemma3(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf(keys, kGemma3LargeLayers, {.period_absent = 6}));
  // Layers with a window rotate over their own base, which no scaling touches.
  config.ropes.push_back({.dims = config.ropes[0].dims, .base = TRY(keys.real_or("rope.freq_base_swa", 10000.0F))});
  TRY(check_rope(config.ropes[1], config.attention.d_qk, keys.names()));
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 1 : 0;
  if (config.architecture == "gemma-embedding") see_both_sides(config);
  return config;
}

// hidden_act, which old files have too, is not read by the class.
constexpr HfDefaults kDefaults{.heads = 8,
                               .kv_heads = 4,
                               .head_dim = 256,
                               .tied = true,
                               .activation_key = "hidden_activation",
                               .activation = plan::Activation::kGeluTanh};

// Null is no cap.
base::Result<float> read_cap(const HfKeys& keys, std::string_view name, float absent) {
  return keys.text().is_null(name) ? 0 : TRY(keys.text().f32_or(name, absent));
}

base::Result<ModelConfig> read_hf(const HfKeys& keys, const HfDefaults& defaults) {
  ModelConfig config = TRY(read_hf_dense(keys, defaults));
  TRY(demand_attention_biases(keys, config));
  config.norm_offset = 1.0F;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  const float scalar = TRY(keys.text().f32_or("query_pre_attn_scalar", 256.0F));
  config.attention.scale = inverse_root(TRY(check_positive(keys.key("query_pre_attn_scalar"), scalar)));
  return config;
}

// By layer_types, else by a period: the last of every `period` layers is global.
base::Result<> read_hf_windows(const HfKeys& keys, std::uint32_t period, ModelConfig& config) {
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : (n + 1) % period != 0;
    if (windowed) config.layers[n].window = window;
  }
  return {};
}

base::Result<ModelConfig> read_hf_gemma2(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf(keys, kDefaults));
  TRY(refuse_if(keys, "use_bidirectional_attention"));
  config.attention.logit_softcap = TRY(read_cap(keys, "attn_logit_softcapping", 50.0F));
  config.logit_softcap = TRY(read_cap(keys, "final_logit_softcapping", 30.0F));
  TRY(read_hf_windows(keys, 2, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

// transformers 5 keeps one dictionary per type of layer, 4 keys of their own for the layers with a window.
base::Result<> read_hf_gemma3_ropes(const HfKeys& keys, ModelConfig& config) {
  const HfRopeRules global{.theta_absent = 1e6};
  const HfRopeRules local{.theta_absent = 1e4, .theta_key = "rope_local_base_freq"};
  std::optional<io::HfConfig> of_global, of_local;
  if (keys.has("rope_parameters")) {
    const io::HfConfig both = TRY(keys.text().object("rope_parameters"));
    for (std::string_view name : {"rope_theta", "rope_type", "type", "factor"}) {
      if (!both.contains(name)) continue;
      return impossible(keys.key("rope_parameters"), std::string(name),
                        "keys of a rotation stand in full_attention and sliding_attention here");
    }
    if (both.contains("full_attention")) of_global = TRY(both.object("full_attention"));
    if (both.contains("sliding_attention")) of_local = TRY(both.object("sliding_attention"));
  } else if (keys.has("rope_scaling")) {
    of_global = TRY(keys.text().object("rope_scaling"));
  }
  const std::uint32_t d = config.attention.d_qk;
  config.ropes = {TRY(read_hf_rope(keys, of_global, d, global))};
  config.ropes.push_back(TRY(read_hf_rope(keys, of_local, d, local)));
  config.attention.rope_layout = plan::RopeLayout::kHalf;
  return {};
}

base::Result<ModelConfig> read_hf_gemma3(const HfKeys& keys) {
  HfDefaults defaults = kDefaults;
  defaults.context = 131072;
  ModelConfig config = TRY(read_hf(keys, defaults));
  config.logit_softcap = TRY(read_cap(keys, "final_logit_softcapping", 0));
  const std::string_view pattern =
      keys.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  TRY(read_hf_windows(keys, TRY(keys.count_or(pattern, 6)), config));
  TRY(read_hf_gemma3_ropes(keys, config));
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 1 : 0;
  if (TRY(keys.text().boolean_or("use_bidirectional_attention", false))) see_both_sides(config);
  TRY(finish_attention(config, keys.names()));
  return config;
}

constexpr OtherKeys kHfOthers = "hidden_act _sliding_window_pattern";

}  // namespace

const Family kGemma2{
    .name = "gemma2",
    .gguf = kGemma2Names,
    .hf = kGemma2Names,
    .layer_templates = kLayerTemplates,
    .weights = kGemma2Weights,
    .hf_others = kHfOthers,
    .read_gguf = read_gguf_gemma2,
    .read_hf = read_hf_gemma2,
};

const Family kGemma3{
    .name = "gemma3",
    .gguf = kGemma3Gguf,
    .hf = kGemma3Hf,
    .layer_templates = kLayerTemplates,
    .weights = kGemma3Weights,
    .hf_others = kHfOthers,
    .read_gguf = read_gguf_gemma3,
    .read_hf = read_hf_gemma3,
};

}  // namespace llorch::engine::models::families::gemma
