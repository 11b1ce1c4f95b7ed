// Kimi Linear: the delta rule with a decay for every channel, or latent attention without rotation; dense then experts.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/latent.h"
#include "engine/models/families/layers.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::kimi_linear {
namespace {

constexpr std::array kDeltaFfn = block(gated_delta(), ffn());
constexpr std::array kDeltaMoe = block(gated_delta(), moe());
constexpr std::array kLatentFfn = block(mla_attention(), ffn());
constexpr std::array kLatentMoe = block(mla_attention(), moe());
constexpr std::array<LayerTemplate, 4> kLayerTemplates{kDeltaFfn, kDeltaMoe, kLatentFfn, kLatentMoe};

constexpr Source joined(const char* name) { return Source(name, Load::kJoined); }
constexpr std::array kOthers{
    row(GatedDeltaSlot::kQkv, joined("blk.{}.attn_[q|k|v].weight"), joined("layers.{}.self_attn.[q|k|v]_proj.weight")),
    row(GatedDeltaSlot::kZA, "blk.{}.ssm_g_a.weight", "layers.{}.self_attn.g_a_proj.weight"),
    row(GatedDeltaSlot::kZ, "blk.{}.ssm_g_b.weight", "layers.{}.self_attn.g_b_proj.weight"),
    row(GatedDeltaSlot::kBeta, "blk.{}.ssm_beta.weight", "layers.{}.self_attn.b_proj.weight"),
    row(GatedDeltaSlot::kDecayA, "blk.{}.ssm_f_a.weight", "layers.{}.self_attn.f_a_proj.weight"),
    row(GatedDeltaSlot::kDecay, "blk.{}.ssm_f_b.weight", "layers.{}.self_attn.f_b_proj.weight"),
    row(GatedDeltaSlot::kConvWeight, joined("blk.{}.ssm_conv1d_[q|k|v].weight"),
        joined("layers.{}.self_attn.[q|k|v]_conv1d.weight")),
    row(GatedDeltaSlot::kA, Source("blk.{}.ssm_a", Load::kReshaped),
        Source("layers.{}.self_attn.A_log", Load::kNegExp)),
    row(GatedDeltaSlot::kDtBias, Source("blk.{}.ssm_dt.bias", Load::kReshaped), "layers.{}.self_attn.dt_bias"),
    row(GatedDeltaSlot::kNorm, "blk.{}.ssm_norm.weight", "layers.{}.self_attn.o_norm.weight"),
    row(GatedDeltaSlot::kOutProj, "blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"),
    // A dense layer's, under the name of the mixtures too.
    row(FfnSlot::kGate, "", "layers.{}.block_sparse_moe.gate_proj.weight"),
    row(FfnSlot::kUp, "", "layers.{}.block_sparse_moe.up_proj.weight"),
    row(FfnSlot::kDown, "", "layers.{}.block_sparse_moe.down_proj.weight"),
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.gate.weight"),
    row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias", "layers.{}.block_sparse_moe.gate.e_score_correction_bias"),
};
constexpr auto kSharedExpert =
    optional_all(shared_expert_weights({.gate = "layers.{}.block_sparse_moe.shared_experts.gate_proj.weight",
                                        .up = "layers.{}.block_sparse_moe.shared_experts.up_proj.weight",
                                        .down = "layers.{}.block_sparse_moe.shared_experts.down_proj.weight"}));
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kLatentAttention, kFfnWeights, kOthers, kMixtralExperts, kSharedExpert);
constexpr std::array<std::string_view, 1> kGguf{"kimi-linear"};
constexpr std::array<std::string_view, 1> kHf{"kimi_linear"};

base::Result<> finish_delta(DeltaConfig& delta, std::string_view heads_key) {
  delta.value_heads = delta.key_heads;
  delta.d_v = delta.rank = delta.d_k;
  delta.channel_decay = delta.sigmoid_gate = true;
  return check_delta(delta, heads_key);
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_latent_sizes(keys, config));
  config.mla.norm_eps = kLatentNormEps;  // what the weights were trained with
  const std::uint32_t heads = TRY(keys.count("attention.head_count"));
  config.delta = {
      .key_heads = heads, .d_k = TRY(keys.count("kda.head_dim")), .d_conv = TRY(keys.count("ssm.conv_kernel"))};
  TRY(finish_delta(config.delta, keys.key("attention.head_count")));
  TRY(read_gguf_routed_experts(keys, config));
  // The converter does not write what goes without saying: weights that sum to one.
  config.moe.norm_topk = TRY(keys.flag_or("expert_weights_norm", true));
  TRY(read_gguf_ffn(keys, config));
  TRY(read_gguf_dense_first(keys, {}, config));
  std::vector<bool> attends;
  for (const std::uint32_t kv_heads : TRY(keys.per_layer("attention.head_count_kv", config.layers.size(), 0)))
    attends.push_back(kv_heads != 0);
  place_attention(attends, config);
  TRY(finish_latent(keys.names(), heads, config));
  return config;
}

base::Result<> read_delta(const HfKeys& keys, DeltaConfig& delta) {
  std::optional<io::HfConfig> own;
  if (keys.has("linear_attn_config")) own = TRY(keys.text().object("linear_attn_config"));
  const auto number = [&](std::string_view nested, std::string_view flat, std::uint32_t absent) {
    return own && own->contains(nested) ? own->u32(nested) : keys.count_or(flat, absent);
  };
  delta.key_heads = TRY(check_count("num_heads", TRY(number("num_heads", "linear_num_heads", 32))));
  delta.d_k = TRY(check_count("head_dim", TRY(number("head_dim", "linear_head_dim", 128))));
  delta.d_conv = TRY(number("short_conv_kernel_size", "linear_conv_kernel_dim", 4));
  return finish_delta(delta, keys.key("linear_num_heads"));
}

// Which layers attend: by layer_types, by lists that count from 1, or every fourth but the first.
base::Result<std::vector<bool>> read_attending(const HfKeys& keys, std::size_t layers) {
  if (auto named = TRY(read_hf_attending(keys, layers))) return *std::move(named);
  std::vector<bool> attends(layers);
  for (std::size_t n = 0; n < layers; ++n) attends[n] = n != 0 && n % 4 == 0;
  if (!keys.has("linear_attn_config")) return attends;
  const io::HfConfig own = TRY(keys.text().object("linear_attn_config"));
  if (!own.contains("full_attn_layers") || !own.contains("kda_layers")) return attends;
  const std::vector<std::uint32_t> full = TRY(own.u32_list("full_attn_layers")),
                                   delta = TRY(own.u32_list("kda_layers"));
  for (std::uint32_t n = 1; n <= layers; ++n) {
    attends[n - 1] = std::ranges::find(full, n) != full.end();
    if (attends[n - 1] == (std::ranges::find(delta, n) != delta.end()))
      return impossible("linear_attn_config", std::to_string(n), "each layer stands in one of the lists");
  }
  return attends;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = 1e-5F, .context_key = "model_max_length"}));
  TRY(read_hf_latent_sizes(keys, config));
  TRY(demand_word(keys, "hidden_act", "silu"));  // of the convolution too
  TRY(demand_latent_weights(keys, config));
  TRY(read_delta(keys, config.delta));
  TRY(read_hf_routed_experts(keys, config,
                             {.experts = "num_experts",
                              .chosen = "num_experts_per_token",
                              .shared = "num_shared_experts",
                              .shared_absent = 1,
                              .groups = "num_expert_group",
                              .normed = "moe_renormalize",
                              .scale_absent = 2.446F}));
  TRY(read_hf_dense_first(keys, {}, config));
  place_attention(TRY(read_attending(keys, config.layers.size())), config);
  TRY(finish_latent(keys.names(), TRY(keys.count("num_attention_heads")), config));
  return config;
}

}  // namespace

const Family kKimiLinear{
    .name = "kimi_linear",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .ignores_layers_past_end = true,
    // Layers do not rotate; the cache's sizes follow from the others.
    .gguf_others = "attention.key_length attention.value_length rope.freq_base",
    .hf_others =
        "intermediate_size head_dim qk_head_dim mla_use_nope=true moe_layer_freq=1 use_grouped_topk "
        "moe_router_activation_func=\"sigmoid\" num_nextn_predict_layers rope_theta rope_scaling",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::kimi_linear
