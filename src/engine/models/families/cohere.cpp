// Command R and A: attention and feed-forward side by side behind one LayerNorm; windows rotate, whole contexts do not.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::cohere {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kOneNormBlock};

constexpr WeightRow head_norm(AttentionSlot slot, const char* gguf, const char* hf) {
  return optional_row(slot, Source(gguf, Load::kReshaped), Source(hf, Load::kReshaped));
}
constexpr std::array kNorms{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    head_norm(AttentionSlot::kQNorm, "blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_norm.weight"),
    head_norm(AttentionSlot::kKNorm, "blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_norm.weight"),
};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, kAttentionBiases, kFfnWeights);
constexpr std::array<std::string_view, 2> kGguf{"command-r", "cohere2"};
constexpr std::array<std::string_view, 2> kHf{"cohere", "cohere2"};
constexpr std::string_view kSecond = "cohere2";

void unrotate(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    if (layer.window == 0) layer.rope = kNoRope;
  }
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.attention.qk_norm = plan::QkNorm::kCenteredPerHead;
  config.logit_mul = TRY(check_positive(keys.key("logit_scale"), TRY(keys.real_or("logit_scale", 0.0625F))));
  if (config.architecture != kSecond) return config;
  TRY(read_gguf_windows(keys, {.window_absent = 4096, .period_absent = 4}, config));
  unrotate(config);
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F, .eps_key = "layer_norm_eps", .tied = true}));
  TRY(demand_attention_biases(keys, config));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.attention.qk_norm = plan::QkNorm::kCenteredPerHead;
  if (config.architecture == kSecond) TRY(refuse_if(keys, "use_qk_norm"));  // of the first
  TRY(demand_if(keys, "use_qk_norm", false, Opcode::kMultiheadAttention,
                {slot_number(AttentionSlot::kQNorm), slot_number(AttentionSlot::kKNorm)}, config));
  config.logit_mul = TRY(check_positive(keys.key("logit_scale"), TRY(keys.text().f32_or("logit_scale", 0.0625F))));
  const bool is_second = config.architecture == kSecond;
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kInterleaved, {.theta_absent = is_second ? 1e4 : 5e5}, config));
  if (!is_second) return config;
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  const std::uint32_t period = TRY(keys.count_or("sliding_window_pattern", 4));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : (n + 1) % period != 0;
    if (windowed) config.layers[n].window = window;
  }
  unrotate(config);
  return config;
}

}  // namespace

const Family kCohere{
    .name = "cohere",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_others =
        "use_parallel_block=true use_parallel_embedding use_gated_activation=true "
        "position_embedding_type=\"rope_gptj\" "
        "rotary_pct=1 layer_switch order_of_interleaved_layers=\"local_attn_first\" use_embedding_sharing",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::cohere
