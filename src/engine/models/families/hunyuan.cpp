// Hunyuan, dense: heads are normed once they have rotated, over a base that is stretched for good.
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr std::array kNormsOfHeads{
    row(AttentionSlot::kQNorm, "blk.{}.attn_q_norm.weight", "layers.{}.self_attn.query_layernorm.weight"),
    row(AttentionSlot::kKNorm, "blk.{}.attn_k_norm.weight", "layers.{}.self_attn.key_layernorm.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kNormsOfHeads, kFfnWeights);
constexpr std::array<std::string_view, 1> kGguf{"hunyuan-dense"};
constexpr std::array<std::string_view, 1> kHf{"hunyuan_v1_dense"};

// The converter stretches the base itself.
base::Result<ModelConfig> read_gguf(const io::ModelFiles& files) {
  ModelConfig config = TRY(read_gguf_dense(TRY(GgufKeys::of(files)), plan::RopeLayout::kHalf));
  config.attention.qk_norm = plan::QkNorm::kPerHeadRotated;
  return config;
}

base::Result<ModelConfig> read_hf(const io::ModelFiles& files) {
  const HfKeys keys = TRY(HfKeys::of(files));
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F}));
  config.attention.qk_norm = plan::QkNorm::kPerHeadRotated;
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.alpha = true}, config));
  return config;
}

}  // namespace

const Family kHunyuan{
    .name = "hunyuan",
    .gguf = kGguf,
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .hf_prefixes = kPrefixes,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families
