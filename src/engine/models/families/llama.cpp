// Llama 1 to 3, Mistral, Mixtral, and everything stored under the same names.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::llama {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

constexpr std::array kFfnBiases{
    optional_row(FfnSlot::kGateBias, "blk.{}.ffn_gate.bias", "layers.{}.mlp.gate_proj.bias"),
    optional_row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "layers.{}.mlp.up_proj.bias"),
    optional_row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "layers.{}.mlp.down_proj.bias"),
};
constexpr std::array kRouting{
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.gate.weight"),
};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kFfnWeights,
                                 kFfnBiases, kRouting, kMixtralExperts);

constexpr std::array<std::string_view, 1> kGguf{"llama"};
constexpr std::array<std::string_view, 4> kHf{"llama", "mistral", "mixtral", "internlm3"};
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};
// Rotation buffers that early converters wrote out.
constexpr std::array<std::string_view, 1> kIgnored{"blk.{}.attn_rot_embd.weight"};

// The converter permutes q and k rows, so pairs are neighbours whatever the original layout was. GGUF carries no window.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  if (TRY(keys.number_or("expert_count", 0)) == 0) return config;
  TRY(read_gguf_moe(keys, config));
  config.moe.norm_topk = true;
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  return config;
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count("num_local_experts"));
  moe.experts_used = TRY(keys.count_or("num_experts_per_tok", 2));
  moe.ffn_expert = TRY(keys.count("intermediate_size"));
  moe.norm_topk = true;
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  return check_count(keys.key("num_experts_per_tok"), moe.experts_used, moe.experts).map([](auto) {});
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const bool is_mixtral = TRY(text_model_type(keys.root())) == "mixtral";
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = is_mixtral ? 1e-5F : 1e-6F}));
  TRY(demand_attention_biases(keys, config));
  TRY(demand_if(keys, "mlp_bias", false, Opcode::kSwiglu,
                {slot_number(FfnSlot::kGateBias), slot_number(FfnSlot::kUpBias), slot_number(FfnSlot::kDownBias)},
                config));
  if (config.architecture == "internlm3") {
    for (const std::string_view flag : {"bias", "qkv_bias"})
      TRY(refuse_if(keys, flag));  // in the class's first spelling
  }
  if (is_mixtral) TRY(read_hf_experts(keys, config));
  if (config.architecture == "mistral" || is_mixtral) {
    const std::uint32_t window = TRY(read_hf_window(keys, is_mixtral ? 0 : 4096));
    for (LayerConfig& layer : config.layers) layer.window = window;
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = is_mixtral ? 1e6 : 1e4}, config));
  return config;
}

}  // namespace

const Family kLlama{
    .name = "llama",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .gguf_ignored = kIgnored,
    .hf_others = "is_llama_config rope_interleaved=false max_sequence_length",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::llama
