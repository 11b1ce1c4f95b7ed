// Gemma 4: heads of two sizes, caches that later layers share, what each layer takes from a table of its own.
#include <cmath>

#include "engine/models/families/families.h"
#include "engine/models/families/layers.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::gemma4 {
namespace {

enum : std::uint8_t { kPlain, kWithInput, kWithExperts };  // the sum of both: with both
constexpr std::array kAttend{norm(NormVariant::kAttention), attention(), post_norm(NormVariant::kPostAttention), add()};
constexpr std::array kDensePart{norm(NormVariant::kFfn), ffn()};
constexpr std::array kEnd{post_norm(NormVariant::kPostFfn), scaled_add()};
constexpr std::array kInputEnd{post_norm(NormVariant::kPostFfn), add(), layer_input(),
                               post_norm(NormVariant::kPostLayerInput), scaled_add()};
// The experts' part waits in the side stream for the dense one.
constexpr std::array kExperts{side_norm(NormVariant::kRouter), norm(NormVariant::kExperts), moe(),
                              to_side(post_norm(NormVariant::kPostExperts))};
constexpr std::array kBoth{post_norm(NormVariant::kDense), add_side()};
constexpr auto kPlainLayer = concat(kAttend, kDensePart, kEnd);
constexpr auto kInputLayer = concat(kAttend, kDensePart, kInputEnd);
constexpr auto kExpertsLayer = concat(kAttend, kExperts, kDensePart, kBoth, kEnd);
constexpr auto kExpertsInputLayer = concat(kAttend, kExperts, kDensePart, kBoth, kInputEnd);
constexpr std::array<LayerTemplate, 4> kLayerTemplates{kPlainLayer, kInputLayer, kExpertsLayer, kExpertsInputLayer};
constexpr WeightRow gate_up(MoeSlot slot) {
  return row(slot, Source("blk.{}.ffn_gate_up_exps.weight", Load::kRows, MoeSlot::kGate, MoeSlot::kUp),
             Source("layers.{}.experts.gate_up_proj", Load::kRows, MoeSlot::kGate, MoeSlot::kUp));
}
constexpr std::array kOthers{
    row(NormVariant::kDense, "blk.{}.post_ffw_norm_1.weight", "layers.{}.post_feedforward_layernorm_1.weight"),
    row(NormVariant::kExperts, "blk.{}.pre_ffw_norm_2.weight", "layers.{}.pre_feedforward_layernorm_2.weight"),
    row(NormVariant::kPostExperts, "blk.{}.post_ffw_norm_2.weight", "layers.{}.post_feedforward_layernorm_2.weight"),
    row(NormVariant::kRouter, Source("blk.{}.ffn_gate_inp.scale", Load::kOverRoot),
        Source("layers.{}.router.scale", Load::kOverRoot)),
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.router.proj.weight"),
    gate_up(MoeSlot::kGate),
    gate_up(MoeSlot::kUp),
    row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight", "layers.{}.experts.down_proj"),
    row(MoeSlot::kExpertScale, "blk.{}.ffn_down_exps.scale", "layers.{}.router.per_expert_scale"),
    row(NormVariant::kPostLayerInput, "blk.{}.post_norm.weight", "layers.{}.post_per_layer_input_norm.weight"),
    row(LayerInputSlot::kGate, "blk.{}.inp_gate.weight", "layers.{}.per_layer_input_gate.weight"),
    row(LayerInputSlot::kProj, "blk.{}.proj.weight", "layers.{}.per_layer_projection.weight"),
    row(LayerInputSlot::kContext, Source("per_layer_model_proj.weight", Load::kLayerRows),
        Source("per_layer_model_projection.weight", Load::kLayerRows)),
    row(LayerInputSlot::kNorm, "per_layer_proj_norm.weight", "per_layer_projection_norm.weight"),
    row(LayerInputSlot::kTable, "per_layer_token_embd.weight", "embed_tokens_per_layer.weight"),
    row(AttentionSlot::kV, "blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"),  // where there is no v
};
constexpr auto kWeights =
    concat(kGlobalWeights, kNormsOnBothSides, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights, kOthers);
constexpr std::array<std::string_view, 2> kHf{"gemma4", "gemma4_text"};  // the first is GGUF's too
constexpr std::array<std::string_view, 2> kGgufClaimed{"rope_freqs.weight", "blk.{}.layer_output_scale.weight"};
constexpr std::array<std::string_view, 1> kHfClaimed{"layers.{}.layer_scalar"};

base::Result<> finish(std::uint32_t inner, const KeyNames& names, ModelConfig& config) {
  if (std::uint64_t{inner} * config.layers.size() > kDimensionMax)
    return impossible("the width of a layer's input", std::to_string(inner), "is too wide");
  config.moe.norm_topk = config.moe.router_apart = true;
  for (LayerConfig& layer : config.layers) {
    layer.rope = layer.window != 0 ? 1 : 0;
    if (inner != 0) layer.layer_template += kWithInput;
    if (config.moe.experts != 0) layer.layer_template += kWithExperts;
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
  if (keys.has("expert_count")) TRY(read_gguf_moe(keys, config));
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
  constexpr HfDefaults kDefaults{.heads = 8,
                                 .kv_heads = 4,
                                 .head_dim = 256,
                                 .context = 131072,
                                 .tied = true,
                                 .activation_key = "hidden_activation",
                                 .activation = plan::Activation::kGeluTanh};
  ModelConfig config = TRY(read_hf_dense(keys, kDefaults));
  config.logit_softcap = TRY(keys.text().f32_or("final_logit_softcapping", 0));
  if (TRY(keys.text().boolean_or("enable_moe_block", false)))
    config.moe = {.experts = TRY(keys.count("num_experts")),
                  .experts_used = TRY(keys.count("top_k_experts")),
                  .ffn_expert = TRY(keys.count("moe_intermediate_size"))};
  TRY(demand_word(keys, "use_bidirectional_attention", "vision"));  // of rows of images
  TRY(demand_attention_biases(keys, config));
  TRY(read_global_heads(keys, config));
  TRY(read_hf_ropes(keys, config));
  TRY(share_caches(TRY(keys.number_or("num_kv_shared_layers", 0)), keys.key("num_kv_shared_layers"), config));
  const std::uint32_t inner = TRY(keys.number_or("hidden_size_per_layer_input", 256));
  if (inner != 0) TRY(demand_number(keys, "vocab_size_per_layer_input", config.vocab));
  TRY(finish(inner, keys.names(), config));
  const bool wide = TRY(keys.text().boolean_or("use_double_wide_mlp", false));
  for (LayerConfig& layer : config.layers) layer.ffn *= wide && layer.cache_of != kOwnCache ? 2 : 1;
  TRY(read_output_scales(keys.files(), kHfClaimed[0], config));
  TRY(check_values(keys, config));
  return config;
}

}  // namespace

const Family kGemma4{
    .name = "gemma4",
    .gguf = std::span(kHf).first(1),
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kGgufClaimed,
    .hf_claimed = kHfClaimed,
    .hf_others = "num_experts top_k_experts moe_intermediate_size vocab_size_per_layer_input",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::gemma4
