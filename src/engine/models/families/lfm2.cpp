// LFM2: short convolutions and attention; also with experts.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/layers.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::lfm2 {
namespace {

constexpr std::array kConvDense = block(shortconv(), ffn());
constexpr std::array kConvMoe = block(shortconv(), moe());

constexpr std::array<LayerTemplate, 4> kLayerTemplates{kConvDense, kConvMoe, kDenseBlock, kMoeBlock};
constexpr std::array kOthers{
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
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.feed_forward.gate.weight"),
    optional_row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias", "layers.{}.feed_forward.expert_bias"),
};
constexpr auto kWeights = concat(kOthers,
                                 ffn_weights({.gate = "layers.{}.feed_forward.w1.weight",
                                              .up = "layers.{}.feed_forward.w3.weight",
                                              .down = "layers.{}.feed_forward.w2.weight"}),
                                 expert_weights({.gate = "layers.{}.feed_forward.experts.{}.w1.weight",
                                                 .up = "layers.{}.feed_forward.experts.{}.w3.weight",
                                                 .down = "layers.{}.feed_forward.experts.{}.w2.weight"}));

constexpr std::array<std::string_view, 2> kGguf{"lfm2", "lfm2moe"};
constexpr std::array<std::string_view, 2> kHf{"lfm2", "lfm2_moe"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.shortconv.l_cache = TRY(keys.count("shortconv.l_cache"));
  TRY(check_taps(keys.key("shortconv.l_cache"), config.shortconv.l_cache));
  if (TRY(keys.number_or("expert_count", 0)) != 0) {
    TRY(read_gguf_moe(keys, config));
    config.moe.gate = plan::MoeGate::kSigmoid;
    config.moe.norm_topk = true;
    TRY(read_gguf_dense_first(keys, {}, config));
  }
  std::vector<bool> attends;
  for (const LayerConfig& layer : config.layers) attends.push_back(layer.heads != 0);
  place_attention(attends, config);
  return config;
}

// By layer_types, else by a list of the layers that attend, else all attend.
base::Result<std::vector<bool>> read_attending(const HfKeys& keys, std::size_t layers) {
  if (auto named = TRY(read_hf_attending(keys, layers))) return *std::move(named);
  std::vector<bool> attends(layers, !keys.has("full_attn_idxs"));
  if (attends[0]) return attends;
  for (const std::uint32_t n : TRY(keys.text().u32_list("full_attn_idxs"))) {
    if (n >= layers) return impossible(keys.key("full_attn_idxs"), std::to_string(n), "is no layer");
    attends[n] = true;
  }
  return attends;
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
  TRY(read_hf_experts_chosen(keys, moe));
  moe.gate = plan::MoeGate::kSigmoid;
  moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", true));
  moe.weights_scale = TRY(keys.text().f32_or("routed_scaling_factor", 1));
  const std::uint32_t dense = TRY(keys.number_or("num_dense_layers", 2));
  for (std::size_t n = dense; n < config.layers.size(); ++n) config.layers[n].layer_template = 1;
  TRY(demand_if(keys, "use_expert_bias", true, Opcode::kMoe, {slot_number(MoeSlot::kSelectionBias)}, config));
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = 1e-5F, .eps_key = "norm_eps"}));
  config.head_tied = false;  // tied unless the file has a head, whatever the flag says
  config.demanded.clear();
  TRY(read_hf_heads(keys, {}, config));
  if (config.architecture == "lfm2_moe") TRY(read_hf_moe(keys, config));
  const std::uint32_t ffn =
      config.moe.experts != 0 ? TRY(keys.count("intermediate_size")) : TRY(read_hf_ffn_size(keys));
  for (LayerConfig& layer : config.layers) layer.ffn = ffn;
  config.shortconv.l_cache = TRY(keys.count_or("conv_L_cache", 3));
  TRY(check_taps(keys.key("conv_L_cache"), config.shortconv.l_cache));
  TRY(demand_if(keys, "conv_bias", false, Opcode::kShortconv,
                {slot_number(ShortconvSlot::kConvBias), slot_number(ShortconvSlot::kInBias),
                 slot_number(ShortconvSlot::kOutBias)},
                config));
  place_attention(TRY(read_attending(keys, config.layers.size())), config);
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 1e6}, config));
  return config;
}

}  // namespace

const Family kLfm2{
    .name = "lfm2",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
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
