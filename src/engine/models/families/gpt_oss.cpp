// gpt-oss: sinks, alternating windows, clamped SwiGLU, experts in MXFP4.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::gpt_oss {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kMoeBlock};

constexpr std::array kNorms{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
};

// Hugging Face stores gate and up as one tensor in which their rows take turns: input-major when the weights are floats.
constexpr WeightRow gate_up(MoeSlot slot, const char* gguf) {
  return row(slot, gguf,
             Source("layers.{}.mlp.experts.gate_up_proj", Load::kTransposedInterleaved, MoeSlot::kGate, MoeSlot::kUp));
}
constexpr WeightRow gate_up_mxfp4(MoeSlot slot) {
  return row(slot, "", Source("layers.{}.mlp.experts.gate_up_proj", Load::kMxfp4Rows, MoeSlot::kGate, MoeSlot::kUp));
}
constexpr WeightRow gate_up_bias(MoeSlot slot, const char* gguf) {
  return row(
      slot, gguf,
      Source("layers.{}.mlp.experts.gate_up_proj_bias", Load::kInterleavedRows, MoeSlot::kGateBias, MoeSlot::kUpBias));
}
constexpr std::array kOthers{
    row(AttentionSlot::kSinks, "blk.{}.attn_sinks.weight", "layers.{}.self_attn.sinks"),
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.router.weight"),
    row(MoeSlot::kRouterBias, "blk.{}.ffn_gate_inp.bias", "layers.{}.mlp.router.bias"),
    gate_up(MoeSlot::kGate, "blk.{}.ffn_gate_exps.weight"),
    gate_up(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight"),
    row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight",
        Source("layers.{}.mlp.experts.down_proj", Load::kTransposedRows, MoeSlot::kDown, MoeSlot::kDown)),
    gate_up_mxfp4(MoeSlot::kGate),
    gate_up_mxfp4(MoeSlot::kUp),
    row(MoeSlot::kDown, "",
        Source("layers.{}.mlp.experts.down_proj", Load::kMxfp4Rows, MoeSlot::kDown, MoeSlot::kDown)),
    gate_up_bias(MoeSlot::kGateBias, "blk.{}.ffn_gate_exps.bias"),
    gate_up_bias(MoeSlot::kUpBias, "blk.{}.ffn_up_exps.bias"),
    row(MoeSlot::kDownBias, "blk.{}.ffn_down_exps.bias", "layers.{}.mlp.experts.down_proj_bias"),
};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, required(kAttentionBiases), kOthers);

constexpr std::array<std::string_view, 1> kGguf{"gpt-oss"};
constexpr std::array<std::string_view, 1> kHf{"gpt_oss"};

constexpr float kAlpha = 1.702F;
constexpr float kLimit = 7.0F;

// GGUF has no keys for the activation, nor for the ends of yarn's ramp, which are exact here.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_moe(keys, config));
  TRY(read_gguf_windows(keys, {.window_absent = 128, .period_absent = 2}, config));
  config.ropes[0].truncate = false;
  config.moe.gate = plan::MoeGate::kSoftmaxAfterTopk;
  config.ffn = {.activation = plan::Activation::kSwigluOai, .alpha = kAlpha, .limit = kLimit};
  return config;
}

base::Result<> read_hf_windows(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t window = TRY(read_hf_window(keys, 128));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : n % 2 == 0;
    if (windowed) config.layers[n].window = window;
  }
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.head_dim = 64, .eps = 1e-5F};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(demand_attention_biases(keys, config));
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count("num_local_experts"));
  moe.experts_used = TRY(keys.count("num_experts_per_tok", moe.experts));
  moe.ffn_expert = TRY(keys.count("intermediate_size"));
  moe.gate = plan::MoeGate::kSoftmaxAfterTopk;
  config.ffn = {.activation = plan::Activation::kSwigluOai,
                .alpha = TRY(keys.text().f32_or("swiglu_alpha", kAlpha)),
                .limit = TRY(keys.text().f32_or("swiglu_limit", kLimit))};
  TRY(read_hf_windows(keys, config));
  const HfRopeRules rules{.theta_absent = 150000.0};
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, rules, config));
  if (!TRY(keys.rope_dictionary())) {
    // The class's own scaling, for files that name none.
    RopeConfig& rope = config.ropes[0];
    rope.kind = RopeKind::kYarn;
    rope.factor = 32;
    rope.original_context = 4096;
    rope.truncate = false;
    rope.attn_factor = static_cast<float>(yarn_magnitude(1, rope.factor));
  }
  return config;
}

}  // namespace

const Family kGptOss{
    .name = "gpt_oss",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = "feed_forward_length",
    .hf_others = "hidden_act=\"silu\" experts_per_token initial_context_length",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::gpt_oss
