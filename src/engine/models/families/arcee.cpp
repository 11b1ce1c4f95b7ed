// Arcee: Llama's layers with a dense part without gates, whose activation is the square of what is positive.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::arcee {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr std::array kFfn{
    kFfnWeights[1],
    kFfnWeights[2],
    optional_row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "layers.{}.mlp.up_proj.bias"),
    optional_row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "layers.{}.mlp.down_proj.bias"),
};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kFfn);
constexpr std::array<std::string_view, 1> kNames{"arcee"};
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};

// The converter permutes q and k rows.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  config.ffn.activation = plan::Activation::kRelu2;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F}));
  TRY(demand_attention_biases(keys, config));
  if (!keys.has("hidden_act")) config.ffn.activation = plan::Activation::kRelu2;
  TRY(demand_if(keys, "mlp_bias", false, Opcode::kSwiglu,
                {slot_number(FfnSlot::kUpBias), slot_number(FfnSlot::kDownBias)}, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kArcee{
    .name = "arcee",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::arcee
