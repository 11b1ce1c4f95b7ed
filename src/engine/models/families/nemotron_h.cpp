// Nemotron H: layers of one mixer each, Mamba-2, attention without rotation, feed-forward or experts without gates.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/mamba.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models::families::nemotron_h {
namespace {

enum : std::uint8_t { kMamba, kAttention, kFfn, kMoe };
constexpr std::array kMambaLayer{norm(NormVariant::kAttention), mamba_mixer(), add()};
constexpr std::array kAttentionLayer{norm(NormVariant::kAttention), attention(), add()};
constexpr std::array kFfnLayer{norm(NormVariant::kAttention), ffn(), add()};
constexpr std::array kMoeLayer{norm(NormVariant::kAttention), moe(), add()};
constexpr std::array<LayerTemplate, 4> kLayerTemplates{kMambaLayer, kAttentionLayer, kFfnLayer, kMoeLayer};

constexpr std::array kOthers{
    row(AttentionSlot::kQ, "blk.{}.attn_q.weight", "layers.{}.mixer.q_proj.weight"),
    row(AttentionSlot::kK, "blk.{}.attn_k.weight", "layers.{}.mixer.k_proj.weight"),
    row(AttentionSlot::kV, "blk.{}.attn_v.weight", "layers.{}.mixer.v_proj.weight"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.mixer.o_proj.weight"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "layers.{}.mixer.up_proj.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.mixer.down_proj.weight"),
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.mixer.gate.weight"),
    row(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight", Source("layers.{}.mixer.experts.{}.up_proj.weight", Load::kStack)),
    row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight",
        Source("layers.{}.mixer.experts.{}.down_proj.weight", Load::kStack)),
    row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias", "layers.{}.mixer.gate.e_score_correction_bias"),
    optional_row(MoeSlot::kSharedUp, "blk.{}.ffn_up_shexp.weight", "layers.{}.mixer.shared_experts.up_proj.weight"),
    optional_row(MoeSlot::kSharedDown, "blk.{}.ffn_down_shexp.weight",
                 "layers.{}.mixer.shared_experts.down_proj.weight"),
    optional_row(MoeSlot::kLatentDown, "blk.{}.ffn_latent_down.weight", "layers.{}.mixer.fc1_latent_proj.weight"),
    optional_row(MoeSlot::kLatentUp, "blk.{}.ffn_latent_up.weight", "layers.{}.mixer.fc2_latent_proj.weight"),
};
constexpr auto kWeights = concat(kMixersAround, kOthers, mixer_weights(kMixerNames));
constexpr std::array<std::string_view, 2> kGguf{"nemotron_h", "nemotron_h_moe"};
constexpr std::array<std::string_view, 1> kHf{"nemotron_h"};
constexpr std::array<std::string_view, 2> kHfPrefixes{"backbone.", "model."};

// Experts between two projections have both, others neither, as the width says.
template <class Keys>
base::Result<> read_latent(const Keys& keys, ModelConfig& config) {
  if (keys.has("moe_latent_size")) config.moe.latent = TRY(keys.count("moe_latent_size"));
  auto& slots = config.moe.latent != 0 ? config.demanded : config.forbidden;
  for (const MoeSlot slot : {MoeSlot::kLatentDown, MoeSlot::kLatentUp})
    slots.push_back({Opcode::kMoe, slot_number(slot)});
  return {};
}

// Sizes tell what a layer is. A feed-forward beside experts may have none, and experts may have that of feed-forwards: their tensors tell,
// and where there are none, the size of an expert.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_mamba(keys, config));
  config.ffn.activation = plan::Activation::kRelu2;
  const bool sparse = TRY(keys.number_or("expert_count", 0)) != 0;
  if (sparse) {
    TRY(read_gguf_routed_experts(keys, config));
    TRY(read_latent(keys, config));
  }
  const std::vector<std::uint32_t> sizes = TRY(keys.per_layer("feed_forward_length", config.layers.size(), 0));
  for (std::uint32_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    layer.rope = kNoRope;
    layer.layer_template = layer.heads != 0 ? kAttention : kMamba;
    const auto stored = [&](std::string_view name) { return keys.files().find_tensor(tensor_name(name, n)); };
    const io::FileTensor* up = stored("blk.{}.ffn_up.weight");
    const bool dense = up != nullptr && up->rank == 2;
    if (!dense && (!sparse || sizes[n] == 0 || layer.heads != 0)) continue;
    const bool routes = stored("blk.{}.ffn_gate_inp.weight") != nullptr || sizes[n] == config.moe.ffn_expert;
    layer.layer_template = routes && !dense ? kMoe : kFfn;
    const std::uint32_t width = sizes[n] != 0 ? sizes[n] : static_cast<std::uint32_t>(up->dims[0]);
    if (layer.layer_template == kFfn) layer.ffn = TRY(check_count(keys.key("feed_forward_length"), width));
  }
  return config;
}

// By number of the template.
constexpr std::array kTypes{HfLayerType::kMamba, HfLayerType::kAttention, HfLayerType::kFfn, HfLayerType::kMoe};

base::Result<> read_hf_layers(const HfKeys& keys, const std::vector<HfLayerType>& types, ModelConfig& config) {
  for (std::size_t n = 0; n < types.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    const auto* known = std::ranges::find(kTypes, types[n]);
    if (known == kTypes.end())
      return impossible(keys.key("layers_block_type"), "another word", "must be mamba, attention, mlp or moe");
    layer.layer_template = static_cast<std::uint8_t>(known - kTypes.begin());
    if (layer.layer_template != kAttention) layer.heads = layer.kv_heads = 0;
    if (layer.layer_template == kFfn) layer.ffn = TRY(keys.count("intermediate_size"));
  }
  if (std::ranges::find(types, HfLayerType::kMoe) == types.end()) return {};
  TRY(read_hf_routed_experts(keys, config));
  TRY(read_latent(keys, config));
  if (config.moe.ffn_shared != 0) config.moe.ffn_shared = TRY(keys.count("moe_shared_expert_intermediate_size"));
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const std::vector<HfLayerType> types = TRY(read_hf_hybrid_layers(keys));
  const HfDefaults defaults{.head_dim = 128, .eps = 1e-5F, .eps_key = "layer_norm_epsilon", .layers = types.size()};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(read_hf_layers(keys, types, config));
  TRY(read_hf_mamba(keys,
                    {.heads = "mamba_num_heads",
                     .head_dim = "mamba_head_dim",
                     .state = "ssm_state_size",
                     .groups = "n_groups",
                     .groups_absent = 8,
                     .taps = "conv_kernel",
                     .width = TRY(keys.count("mamba_num_heads")) * TRY(keys.count("mamba_head_dim"))},
                    config));
  config.ffn.activation = TRY(read_hf_activation(keys, "mlp_hidden_act", plan::Activation::kRelu2));
  TRY(demand_word(keys, "mamba_hidden_act", "silu"));
  for (const std::string_view flag : {"attention_bias", "mlp_bias", "use_bias"}) TRY(refuse_if(keys, flag));
  TRY(demand_number(keys, "sliding_window", 0));
  TRY(demand_mixer_biases(keys, "use_conv_bias", "mamba_proj_bias", config));
  TRY(finish_attention(config, keys.names()));
  return config;
}

}  // namespace

const Family kNemotronH{
    .name = "nemotron_h",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_prefixes = kHfPrefixes,
    .ignores_layers_past_end = true,
    .gguf_others = "rope.scaling.finetuned",
    .hf_others =
        "chunk_size expand mamba_ssm_cache_dtype moe_shared_expert_overlap mtp_layers_block_type num_logits_to_keep "
        "num_nextn_predict_layers residual_in_fp32 time_step_floor time_step_max time_step_min use_mamba_kernels "
        "norm_eps rms_norm_eps",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::nemotron_h
