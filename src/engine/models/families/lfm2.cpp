// LFM2: short convolutions and attention; also with experts.
#include <algorithm>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::lfm2 {
namespace {

constexpr std::array kConvDense{norm(NormVariant::kAttention), shortconv(), add(),
                                norm(NormVariant::kFfn),       ffn(),       add()};
constexpr std::array kConvMoe{norm(NormVariant::kAttention), shortconv(), add(), norm(NormVariant::kFfn), moe(), add()};

constexpr std::array<LayerTemplate, 4> kLayerTemplates{kConvDense, kConvMoe, kDenseBlock, kMoeBlock};
constexpr std::uint8_t layer_template(bool attends, bool sparse) {
  return static_cast<std::uint8_t>((attends ? 2 : 0) + (sparse ? 1 : 0));
}

constexpr std::array kWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embed_tokens.weight"),
    // The norm of the last layer's output, whatever it is called.
    row(NormVariant::kOutput, "token_embd_norm.weight", "embedding_norm.weight"),
    row(NormVariant::kOutput, "output_norm.weight", ""),
    head_row("output.weight", "^lm_head.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.operator_norm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.ffn_norm.weight"),
    row(AttentionSlot::kQ, "blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"),
    row(AttentionSlot::kK, "blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"),
    row(AttentionSlot::kV, "blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.self_attn.out_proj.weight"),
    row(AttentionSlot::kQNorm, "blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_layernorm.weight"),
    row(AttentionSlot::kKNorm, "blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_layernorm.weight"),
    row(ShortconvSlot::kInProj, "blk.{}.shortconv.in_proj.weight", "layers.{}.conv.in_proj.weight"),
    row(ShortconvSlot::kConvWeight, "blk.{}.shortconv.conv.weight",
        Source("layers.{}.conv.conv.weight", Load::kReshaped)),
    row(ShortconvSlot::kOutProj, "blk.{}.shortconv.out_proj.weight", "layers.{}.conv.out_proj.weight"),
    optional_row(ShortconvSlot::kConvBias, "blk.{}.shortconv.conv.bias", "layers.{}.conv.conv.bias"),
    optional_row(ShortconvSlot::kInBias, "blk.{}.shortconv.in_proj.bias", "layers.{}.conv.in_proj.bias"),
    optional_row(ShortconvSlot::kOutBias, "blk.{}.shortconv.out_proj.bias", "layers.{}.conv.out_proj.bias"),
    row(FfnSlot::kGate, "blk.{}.ffn_gate.weight", "layers.{}.feed_forward.w1.weight"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "layers.{}.feed_forward.w3.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.feed_forward.w2.weight"),
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.feed_forward.gate.weight"),
    row(MoeSlot::kGate, "blk.{}.ffn_gate_exps.weight",
        Source("layers.{}.feed_forward.experts.{}.w1.weight", Load::kStack)),
    row(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight", Source("layers.{}.feed_forward.experts.{}.w3.weight", Load::kStack)),
    row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight",
        Source("layers.{}.feed_forward.experts.{}.w2.weight", Load::kStack)),
    optional_row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias", "layers.{}.feed_forward.expert_bias"),
};

constexpr std::array<std::string_view, 2> kGguf{"lfm2", "lfm2moe"};
constexpr std::array<std::string_view, 2> kHf{"lfm2", "lfm2_moe"};

void choose_layer_templates(std::uint32_t dense_layers, ModelConfig& config) {
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool sparse = config.moe.experts != 0 && n >= dense_layers;
    config.layers[n].layer_template = layer_template(config.layers[n].heads != 0, sparse);
  }
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.shortconv.l_cache = TRY(keys.count("shortconv.l_cache"));
  TRY(check_taps(keys.key("shortconv.l_cache"), config.shortconv.l_cache));
  if (TRY(keys.number_or("expert_count", 0)) != 0) {
    TRY(read_gguf_moe(keys, config));
    config.moe.gate = plan::MoeGate::kSigmoid;
    config.moe.norm_topk = true;
  }
  choose_layer_templates(TRY(keys.number_or("leading_dense_block_count", 0)), config);
  return config;
}

// By layer_types, else by a list of the layers that attend, else all attend.
base::Result<> read_hf_layers(const HfKeys& keys, ModelConfig& config) {
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  std::vector<bool> attends(config.layers.size(), !types && !keys.has("full_attn_idxs"));
  if (types) {
    for (std::size_t n = 0; n < attends.size(); ++n) attends[n] = (*types)[n] == HfLayerType::kAttention;
  } else if (keys.has("full_attn_idxs")) {
    for (const std::uint32_t n : TRY(keys.text().u32_list("full_attn_idxs"))) {
      if (n >= attends.size()) return impossible(keys.key("full_attn_idxs"), std::to_string(n), "is no layer");
      attends[n] = true;
    }
  }
  for (std::size_t n = 0; n < attends.size(); ++n) {
    if (!attends[n]) config.layers[n].heads = config.layers[n].kv_heads = 0;
  }
  return {};
}

base::Result<std::uint32_t> read_hf_ffn_size(const HfKeys& keys) {
  const std::uint32_t given = TRY(keys.count_of({"block_ff_dim", "intermediate_size"}));
  if (!TRY(keys.text().boolean_or("block_auto_adjust_ff_dim", true))) return given;
  std::uint64_t adjusted = 2ULL * given / 3;
  const bool is_null = keys.text().is_null("block_ffn_dim_multiplier");
  if (!is_null) {
    const double multiplier = TRY(keys.text().f32_or("block_ffn_dim_multiplier", 1.0F));
    const std::uint32_t step = TRY(keys.count_or("block_multiple_of", 256));
    adjusted = static_cast<std::uint64_t>(multiplier * static_cast<double>(adjusted));
    adjusted = (adjusted + step - 1) / step * step;
  }
  return check_count(keys.key("intermediate_size") + ", adjusted",
                     static_cast<std::uint32_t>(std::min<std::uint64_t>(adjusted, kDimensionMax + 1ULL)));
}

base::Result<> read_hf_moe(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count("num_experts"));
  moe.experts_used = TRY(keys.count("num_experts_per_tok", moe.experts));
  moe.ffn_expert = TRY(keys.count("moe_intermediate_size"));
  moe.gate = plan::MoeGate::kSigmoid;
  moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", true));
  moe.weights_scale = TRY(keys.text().f32_or("routed_scaling_factor", 1));
  TRY(demand_if(keys, "use_expert_bias", true, Opcode::kMoe, {slot_number(MoeSlot::kSelectionBias)}, config));
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = 1e-5F, .eps_key = "norm_eps"}));
  config.head_tied = false;  // tied unless the file has a head, whatever the flag says
  config.demanded.clear();
  TRY(read_hf_heads(keys, {}, config));
  TRY(read_hf_layers(keys, config));
  std::uint32_t dense_layers = 0;
  if (config.architecture == "lfm2_moe") {
    TRY(read_hf_moe(keys, config));
    dense_layers = TRY(keys.number_or("num_dense_layers", 2));
  }
  const std::uint32_t ffn =
      config.moe.experts != 0 ? TRY(keys.count("intermediate_size")) : TRY(read_hf_ffn_size(keys));
  for (LayerConfig& layer : config.layers) layer.ffn = ffn;
  config.shortconv.l_cache = TRY(keys.count_or("conv_L_cache", 3));
  TRY(check_taps(keys.key("conv_L_cache"), config.shortconv.l_cache));
  TRY(demand_if(keys, "conv_bias", false, Opcode::kShortconv,
                {slot_number(ShortconvSlot::kConvBias), slot_number(ShortconvSlot::kInBias),
                 slot_number(ShortconvSlot::kOutBias)},
                config));
  choose_layer_templates(dense_layers, config);
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 1e6}, config));
  return config;
}

}  // namespace

const Family kLfm2{
    .name = "lfm2",
    .gguf = kGguf,
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .hf_prefixes = kPrefixes,
    .hf_others =
        "block_auto_adjust_ff_dim block_ffn_dim_multiplier block_multiple_of full_attn_idxs intermediate_size "
        "tie_embedding rms_norm_eps "
        "block_dim "
        "block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu=true block_use_xavier_init conv_dim "
        "conv_dim_out conv_use_xavier_init num_heads theta use_pos_enc=true",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::lfm2
