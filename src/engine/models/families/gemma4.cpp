// Gemma 4: heads of two sizes, caches that later layers share, what each layer takes from a table of its own.
#include <cmath>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/layers.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {
namespace {

constexpr std::array kFront{norm(NormVariant::kAttention), attention(), post_norm(NormVariant::kPostAttention), add(),
                            norm(NormVariant::kFfn),       ffn(),       post_norm(NormVariant::kPostFfn)};
constexpr auto kPlain = concat(kFront, std::array{scaled_add()});
constexpr auto kWithInput =
    concat(kFront, std::array{add(), layer_input(), post_norm(NormVariant::kPostLayerInput), scaled_add()});
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kPlain, kWithInput};
constexpr std::array kOthers{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kPostAttention, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.pre_feedforward_layernorm.weight"),
    row(NormVariant::kPostFfn, "blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"),
    row(NormVariant::kPostLayerInput, "blk.{}.post_norm.weight", "layers.{}.post_per_layer_input_norm.weight"),
    row(LayerInputSlot::kGate, "blk.{}.inp_gate.weight", "layers.{}.per_layer_input_gate.weight"),
    row(LayerInputSlot::kProj, "blk.{}.proj.weight", "layers.{}.per_layer_projection.weight"),
    row(LayerInputSlot::kContext, Source("per_layer_model_proj.weight", Load::kLayerRows),
        Source("per_layer_model_projection.weight", Load::kLayerRows)),
    row(LayerInputSlot::kNorm, "per_layer_proj_norm.weight", "per_layer_projection_norm.weight"),
    row(LayerInputSlot::kTable, "per_layer_token_embd.weight", "embed_tokens_per_layer.weight"),
    row(AttentionSlot::kV, "blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"),  // where there is no v
};
constexpr auto kWeights = concat(kGlobalWeights, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights, kOthers);
constexpr std::array<std::string_view, 2> kHf{"gemma4", "gemma4_text"};  // the first is GGUF's too
constexpr std::array<std::string_view, 2> kGgufClaimed{"rope_freqs.weight", "blk.{}.layer_output_scale.weight"};
constexpr std::array<std::string_view, 4> kHfClaimed{"layers.{}.layer_scalar", "^model.embed_vision.*",
                                                     "^model.audio_tower.*", "^model.embed_audio.*"};

base::Result<> finish(std::uint32_t inner, const KeyNames& names, ModelConfig& config) {
  if (std::uint64_t{inner} * config.layers.size() > kDimensionMax)
    return impossible("the width of a layer's input", std::to_string(inner), "is too wide for all layers together");
  for (LayerConfig& layer : config.layers) {
    layer.rope = layer.window != 0 ? 1 : 0;
    layer.layer_template = inner != 0 ? 1 : 0;
  }
  const auto root = [](std::uint32_t n) { return std::sqrt(static_cast<float>(n)); };
  config.embedding_scale = root(config.width);
  config.layer_input = {inner, root(inner), 1.0F / root(config.width), 0x1.6a09e6p-1F};
  config.attention.scale = 1.0F;
  config.attention.unit_values = true;
  return finish_attention(config, names);
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.ffn.activation = plan::Activation::kGeluTanh;
  TRY(read_gguf_windows(keys, {.period_absent = 6}, config));
  const std::uint32_t d_swa = TRY(keys.count_or("attention.key_length_swa", config.attention.d_qk));
  if (config.attention.d_v != config.attention.d_qk || TRY(keys.count_or("attention.value_length_swa", d_swa)) != d_swa)
    return impossible(keys.key("attention.value_length"), "another length", "must be that of keys");
  config.ropes.push_back({.dims = TRY(keys.count_or("rope.dimension_count_swa", d_swa)),
                          .base = TRY(keys.real_or("rope.freq_base_swa", 10000.0F))});
  for (LayerConfig& layer : config.layers) layer.d_head = layer.window != 0 ? d_swa : config.attention.d_qk;
  TRY(read_output_scales(keys.files(), kGgufClaimed[1], config));
  TRY(share_caches(TRY(keys.number_or("attention.shared_kv_layers", 0)), keys.key("attention.shared_kv_layers"),
                   config));
  TRY(finish(TRY(keys.number_or("embedding_length_per_layer_input", 0)), keys.names(), config));
  return config;
}

// Layers without a window have heads of their own size and number.
base::Result<> read_hf_layers(const HfKeys& keys, bool keys_are_values, ModelConfig& config) {
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  const std::uint32_t window = TRY(read_hf_window(keys, 512));
  const std::uint32_t d_global = TRY(keys.count_or("global_head_dim", 512));
  const std::uint32_t kv_global = TRY(keys.number_or("num_global_key_value_heads", 0));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    const bool windowed =
        n + 1 != config.layers.size() && (types ? (*types)[n] == HfLayerType::kWindow : (n + 1) % 6 != 0);
    layer.window = windowed ? window : 0;
    layer.d_head = windowed ? config.attention.d_qk : d_global;
    if (!windowed && keys_are_values && kv_global != 0) layer.kv_heads = kv_global;
  }
  return read_layer_overrides(keys, config);
}

// Of layers that project keys, those without a window project no values where keys are values.
base::Result<> check_values(const HfKeys& keys, bool keys_are_values, const ModelConfig& config) {
  for (std::uint32_t n = 0; n < config.layers.size(); ++n) {
    const auto projects = [&](std::string_view what) { return !find_layer_tensor(keys.files(), what, n).empty(); };
    const LayerConfig& layer = config.layers[n];
    if (layer.cache_of == kOwnCache && projects("layers.{}.self_attn.k_proj.weight") &&
        projects("layers.{}.self_attn.v_proj.weight") == (layer.window == 0 && keys_are_values))
      return impossible(keys.key("attention_k_eq_v"), keys_are_values ? "true" : "false",
                        "the tensors of layer " + std::to_string(n) + " say otherwise");
  }
  return {};
}

base::Result<> read_hf_ropes(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t d = config.attention.d_qk, d_full = config.layers.back().d_head;  // which has no window
  config.attention.rope_layout = plan::RopeLayout::kHalf;
  config.ropes = {{.dims = d_full, .base = 1e6, .turning = d_full / 8}, {.dims = d}};
  if (keys.has("rope_parameters"))
    config.ropes = {TRY(read_hf_rope(keys, d_full, {.theta_absent = 1e6})),
                    TRY(read_hf_rope(keys, d, {.layer_type = "sliding_attention"}))};
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  constexpr HfDefaults kDefaults{.heads = 8, .kv_heads = 4, .head_dim = 256, .context = 131072, .tied = true};
  ModelConfig config = TRY(read_hf_basics(keys, kDefaults));
  TRY(read_hf_heads(keys, kDefaults, config));
  TRY(read_hf_ffn(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_activation", plan::Activation::kGeluTanh));
  config.logit_softcap = TRY(keys.text().f32_or("final_logit_softcapping", 0));
  TRY(refuse_if(keys, "enable_moe_block"));
  TRY(demand_word(keys, "use_bidirectional_attention", "vision"));  // of rows of images
  TRY(demand_attention_biases(keys, config));
  const bool keys_are_values = TRY(keys.text().boolean_or("attention_k_eq_v", false));
  TRY(read_hf_layers(keys, keys_are_values, config));
  TRY(read_hf_ropes(keys, config));
  TRY(share_caches(TRY(keys.number_or("num_kv_shared_layers", 0)), keys.key("num_kv_shared_layers"), config));
  const std::uint32_t inner = TRY(keys.number_or("hidden_size_per_layer_input", 256));
  if (inner != 0) TRY(demand_number(keys, "vocab_size_per_layer_input", config.vocab));
  TRY(finish(inner, keys.names(), config));
  const bool wide = TRY(keys.text().boolean_or("use_double_wide_mlp", false));
  for (LayerConfig& layer : config.layers) layer.ffn *= wide && layer.cache_of != kOwnCache ? 2 : 1;
  TRY(read_output_scales(keys.files(), kHfClaimed[0], config));
  TRY(check_values(keys, keys_are_values, config));
  return config;
}

}  // namespace

const Family kGemma4{
    .name = "gemma4",
    .gguf = std::span(kHf).first(1),
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .hf_prefixes = kPrefixes,
    .gguf_claimed = kGgufClaimed,
    .hf_claimed = kHfClaimed,
    .hf_others = "num_experts top_k_experts moe_intermediate_size vocab_size_per_layer_input",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families
