// EXAONE 4: norms behind each branch only and on every head; windows rotate, whole contexts beside them do not.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::exaone4 {
namespace {

constexpr std::array kBlock{of_residual(attention()), post_norm(NormVariant::kPostAttention), add(),
                            of_residual(ffn()),       post_norm(NormVariant::kPostFfn),       add()};
constexpr std::array<LayerTemplate, 1> kLayerTemplates{kBlock};

constexpr std::array kNorms{
    row(NormVariant::kPostAttention, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    row(NormVariant::kPostFfn, "blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"),
};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, kHeadNorms, kFfnWeights);
constexpr std::array<std::string_view, 1> kNames{"exaone4"};
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};

void unrotate(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    if (layer.window == 0) layer.rope = kNoRope;
  }
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  TRY(read_gguf_windows(keys, {.period_absent = 4}, config));
  if (TRY(keys.number_or("attention.sliding_window", 0)) != 0) unrotate(config);
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F}));
  TRY(demand_attention_biases(keys, config));
  TRY(refuse_if(keys, "attention_bias"));
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : (n + 1) % 4 != 0;
    if (windowed) config.layers[n].window = window;
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  if (window != 0) unrotate(config);
  return config;
}

}  // namespace

const Family kExaone4{
    .name = "exaone4",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .hf_others = "sliding_window_pattern",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::exaone4
