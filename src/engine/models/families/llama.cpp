// Llama 1 to 3 and Mistral, and everything stored under the same names.
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

constexpr std::array kFfnBiases{
    optional_row(FfnSlot::kGateBias, "blk.{}.ffn_gate.bias", "layers.{}.mlp.gate_proj.bias"),
    optional_row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "layers.{}.mlp.up_proj.bias"),
    optional_row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "layers.{}.mlp.down_proj.bias"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kFfnWeights, kFfnBiases);

constexpr std::array<std::string_view, 1> kGguf{"llama"};
constexpr std::array<std::string_view, 2> kHf{"llama", "mistral"};
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};
// Rotation buffers that early converters wrote out.
constexpr std::array<std::string_view, 1> kIgnored{"blk.{}.attn_rot_embd.weight"};

// The converter permutes q and k rows, so pairs are neighbours whatever the original layout was. GGUF carries no window.
base::Result<ModelConfig> read_gguf(const io::ModelFiles& files) {
  const GgufKeys keys = TRY(GgufKeys::of(files));
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  if (const std::uint32_t experts = TRY(keys.number_or("expert_count", 0)); experts != 0) {
    return impossible(keys.key("expert_count"), std::to_string(experts),
                      "this family is dense; a mixture of experts goes by another architecture");
  }
  return config;
}

base::Result<ModelConfig> read_hf(const io::ModelFiles& files) {
  const HfKeys keys = TRY(HfKeys::of(files));
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  TRY(read_hf_ffn(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  TRY(demand_if(keys, "mlp_bias", false, Opcode::kSwiglu,
                {slot_number(FfnSlot::kGateBias), slot_number(FfnSlot::kUpBias), slot_number(FfnSlot::kDownBias)},
                config));
  if (config.architecture == "mistral") {
    const std::uint32_t window = TRY(read_hf_window(keys, 4096));
    for (LayerConfig& layer : config.layers) layer.window = window;
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kLlama{
    .name = "llama",
    .gguf = kGguf,
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .hf_prefixes = kPrefixes,
    .gguf_claimed = kClaimed,
    .gguf_ignored = kIgnored,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families
