// Hunyuan: heads are normed once they have rotated, over a base that is stretched for good; dense, or experts beside a shared one.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::hunyuan {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};
constexpr std::array kNormsOfHeads{
    row(AttentionSlot::kQNorm, "blk.{}.attn_q_norm.weight", "layers.{}.self_attn.query_layernorm.weight"),
    row(AttentionSlot::kKNorm, "blk.{}.attn_k_norm.weight", "layers.{}.self_attn.key_layernorm.weight"),
};
constexpr auto kMixture = concat(std::array{row(MoeSlot::kRouter, "", "layers.{}.mlp.gate.wg.weight")},
                                 shared_expert_weights({.gate = "layers.{}.mlp.shared_mlp.gate_proj.weight",
                                                        .up = "layers.{}.mlp.shared_mlp.up_proj.weight",
                                                        .down = "layers.{}.mlp.shared_mlp.down_proj.weight"}));
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kNormsOfHeads,
                                 kFfnWeights, kMixture, kSoftmaxExperts);
constexpr std::array<std::string_view, 2> kGguf{"hunyuan-dense", "hunyuan-moe"};
constexpr std::array<std::string_view, 2> kHf{"hunyuan_v1_dense", "hunyuan_v1_moe"};

// The converter stretches the base itself.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.attention.qk_norm = plan::QkNorm::kPerHeadRotated;
  if (config.architecture == "hunyuan-dense") return config;
  TRY(read_gguf_moe(keys, config));
  config.moe.norm_topk = true;
  config.moe.ffn_shared = TRY(keys.number_or("expert_shared_feed_forward_length", config.layers[0].ffn));
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  return config;
}

// A number that Tencent's files repeat for each layer.
base::Result<std::uint32_t> read_alike(const HfKeys& keys, std::string_view name, std::uint32_t absent) {
  if (keys.text().kind(name) != io::HfKind::kList) return keys.count_or(name, absent);
  const std::vector<std::uint32_t> numbers = TRY(keys.text().u32_list(name));
  for (const std::uint32_t number : numbers) {
    if (number != numbers[0]) return impossible(keys.key(name), std::to_string(number), "must be alike in all layers");
  }
  if (numbers.empty()) return impossible(keys.key(name), "empty", "must be a number or one for each layer");
  return check_count(keys.key(name), numbers[0]);
}

// The class has one width for all experts, the shared one too.
base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(read_alike(keys, "num_experts", 1));
  moe.experts_used = TRY(read_alike(keys, "moe_topk", 1));
  TRY(check_count(keys.key("moe_topk"), moe.experts_used, moe.experts));
  moe.ffn_expert = TRY(keys.count("intermediate_size"));
  for (const std::string_view name : {"moe_intermediate_size", "num_shared_expert"}) {
    const std::uint32_t only = name == "num_shared_expert" ? 1 : moe.ffn_expert;
    if (const std::uint32_t number = TRY(read_alike(keys, name, only)); number != only)
      return impossible(keys.key(name), std::to_string(number), "must be " + std::to_string(only));
  }
  moe.ffn_shared = moe.ffn_expert;
  moe.norm_topk = true;
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F}));
  TRY(demand_attention_biases(keys, config));
  config.attention.qk_norm = plan::QkNorm::kPerHeadRotated;
  TRY(demand_number(keys, "attention_head_dim", config.attention.d_qk));
  if (config.architecture == "hunyuan_v1_moe") TRY(read_hf_experts(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.alpha = true}, config));
  return config;
}

}  // namespace

const Family kHunyuan{
    .name = "hunyuan",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = "expert_shared_count",
    .hf_others =
        "eod_token_id rope_parameters.factor rope_scaling.factor add_classification_head=false class_num dense_list "
        "enable_lm_head_fp32 im_end_id im_newline_id im_start_id mask_init_id mlp_bias=false norm_type=\"rms\" "
        "org_vocab_size pad_id pool_type text_end_id text_start_id use_cla=false cla_share_factor use_qk_norm=true "
        "use_rotary_pos_emb=true norm_topk_prob=true moe_layer_num_skipped=0 use_mixed_mlp_moe=true use_mla=false "
        "routed_scaling_factor=1 group_limited_greedy=false moe_drop_tokens=false "
        "moe_random_routing_dropped_token=false",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::hunyuan
