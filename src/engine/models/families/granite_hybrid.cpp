// Granite 4 hybrids: Mamba-2 and attention layers, a mixture with a shared expert or a dense feed-forward,
// multipliers everywhere.
#include <algorithm>

#include "engine/models/families/families.h"
#include "engine/models/families/granite.h"
#include "engine/models/families/mamba.h"

namespace llorch::engine::models::families::granite_hybrid {
namespace {

constexpr std::array kMambaMoe = block(mamba_mixer(), moe());
constexpr std::array kMambaDense = block(mamba_mixer(), ffn());

constexpr std::array<LayerTemplate, 4> kLayerTemplates{kMambaDense, kMambaMoe, kDenseBlock, kMoeBlock};
constexpr std::uint8_t layer_template(bool attends, bool sparse) {
  return static_cast<std::uint8_t>((attends ? 2 : 0) + (sparse ? 1 : 0));
}

constexpr auto kMixer = mixer_weights({.in_proj = "layers.{}.mamba.in_proj.weight",
                                       .in_bias = "layers.{}.mamba.in_proj.bias",
                                       .conv = "layers.{}.mamba.conv1d.weight",
                                       .conv_bias = "layers.{}.mamba.conv1d.bias",
                                       .dt_bias = "layers.{}.mamba.dt_bias",
                                       .a_log = "layers.{}.mamba.A_log",
                                       .d = "layers.{}.mamba.D",
                                       .norm = "layers.{}.mamba.norm.weight",
                                       .out_proj = "layers.{}.mamba.out_proj.weight",
                                       .out_bias = "layers.{}.mamba.out_proj.bias"});

// GGUF names the shared expert by whether there are others.
constexpr WeightRow shared(MoeSlot slot, const char* gguf) {
  return row(slot, gguf,
             Source("layers.{}.shared_mlp.input_linear.weight", Load::kRows, MoeSlot::kSharedGate, MoeSlot::kSharedUp));
}
constexpr WeightRow dense(FfnSlot slot, const char* gguf) {
  return row(slot, gguf, Source("layers.{}.shared_mlp.input_linear.weight", Load::kRows, FfnSlot::kGate, FfnSlot::kUp));
}
constexpr std::array kFeedForward{
    shared(MoeSlot::kSharedGate, "blk.{}.ffn_gate_shexp.weight"),
    shared(MoeSlot::kSharedUp, "blk.{}.ffn_up_shexp.weight"),
    row(MoeSlot::kSharedDown, "blk.{}.ffn_down_shexp.weight", "layers.{}.shared_mlp.output_linear.weight"),
    dense(FfnSlot::kGate, "blk.{}.ffn_gate.weight"),
    dense(FfnSlot::kUp, "blk.{}.ffn_up.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.shared_mlp.output_linear.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kMixer, kGraniteExperts, kFeedForward);

constexpr std::array<std::string_view, 1> kGguf{"granitehybrid"};
constexpr std::array<std::string_view, 1> kHf{"granitemoehybrid"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kInterleaved, config));
  TRY(read_gguf_multipliers(keys, config));
  const bool mixes = std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.heads == 0; });
  if (mixes || keys.has("ssm.inner_size")) TRY(read_gguf_mamba(keys, config));
  const bool sparse = TRY(keys.number_or("expert_count", 0)) != 0;
  if (sparse) {
    TRY(read_gguf_moe(keys, config));
    config.moe.gate = plan::MoeGate::kSoftmaxAfterTopk;
    config.moe.ffn_shared = TRY(keys.count("expert_shared_feed_forward_length"));
  } else {
    TRY(read_gguf_ffn(keys, config));
  }
  for (LayerConfig& layer : config.layers) layer.layer_template = layer_template(layer.heads != 0, sparse);
  return config;
}

base::Result<> read_hf_layers(const HfKeys& keys, bool sparse, ModelConfig& config) {
  const std::string_view name = keys.has("layer_types") ? "layer_types" : "layers_block_type";
  const auto types = TRY(read_hf_layer_types(keys, name, config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool attends = types && (*types)[n] == HfLayerType::kAttention;
    config.layers[n].layer_template = layer_template(attends, sparse);
    if (!attends) config.layers[n].heads = config.layers[n].kv_heads = 0;
  }
  return {};
}

base::Result<> read_hf_feed_forward(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  const std::uint32_t shared_ffn = TRY(keys.count("shared_intermediate_size"));
  moe.experts = TRY(keys.number_or("num_local_experts", 0));
  for (LayerConfig& layer : config.layers) layer.ffn = shared_ffn;
  if (moe.experts == 0) return {};
  moe.experts_used = TRY(keys.count("num_experts_per_tok", moe.experts));
  moe.ffn_expert = TRY(keys.count("intermediate_size"));
  moe.ffn_shared = shared_ffn;
  moe.gate = plan::MoeGate::kSoftmaxAfterTopk;
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  TRY(read_hf_feed_forward(keys, config));
  TRY(read_hf_layers(keys, config.moe.experts != 0, config));
  const bool mixes = std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.heads == 0; });
  if (mixes || keys.has("mamba_n_heads")) TRY(read_hf_mamba(keys, {}, config));
  TRY(demand_attention_biases(keys, config));
  TRY(demand_mixer_biases(keys, "mamba_conv_bias", "mamba_proj_bias", config));
  TRY(demand_word(keys, "hidden_act", "silu"));  // of the mixers too
  TRY(read_hf_multipliers(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  if (TRY(keys.text().string_or("position_embedding_type", "nope")) != "rope") {
    for (LayerConfig& layer : config.layers) layer.rope = kNoRope;
  }
  return config;
}

}  // namespace

const Family kGraniteHybrid{
    .name = "granite_hybrid",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = "feed_forward_length expert_shared_feed_forward_length",
    // The last two are of experts, which a model may not have.
    .hf_others =
        "mamba_chunk_size init_method normalization_function=\"rmsnorm\" intermediate_size num_experts_per_tok",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::granite_hybrid
