// Hunyuan, dense: heads are normed once they have rotated, over a base that is stretched for good.
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::hunyuan {
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
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.attention.qk_norm = plan::QkNorm::kPerHeadRotated;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
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
    .hf_others =
        "eod_token_id rope_parameters.factor rope_scaling.factor add_classification_head=false class_num dense_list "
        "enable_lm_head_fp32 im_end_id im_newline_id im_start_id mask_init_id mlp_bias=false norm_type=\"rms\" "
        "org_vocab_size pad_id pool_type text_end_id text_start_id use_cla=false cla_share_factor use_qk_norm=true "
        "use_rotary_pos_emb=true",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::hunyuan
