// Seed-OSS: biases on q, k and v, heads of a size of their own.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::seed_oss {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

// GGUF calls the second norm by the place it stands in.
constexpr std::array kNorms{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, kAttentionBiases, kFfnWeights);
constexpr std::array<std::string_view, 1> kNames{"seed_oss"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) { return read_gguf_dense(keys, plan::RopeLayout::kHalf); }

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.head_dim = 128}));
  TRY(demand_qkv_biases(keys, config, "attention_bias", true));
  TRY(demand_if(keys, "attention_out_bias", false, Opcode::kMultiheadAttention, {slot_number(AttentionSlot::kOBias)},
                config));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kSeedOss{
    .name = "seed_oss",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::seed_oss
