// OLMo 2 and 3: norms behind each branch only, and one over all query heads and one over all key heads of a row.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::olmo {
namespace {

constexpr std::array kBlock{of_residual(attention()), post_norm(NormVariant::kPostAttention), add(),
                            of_residual(ffn()),       post_norm(NormVariant::kPostFfn),       add()};
constexpr std::array<LayerTemplate, 1> kLayerTemplates{kBlock};

constexpr std::array kNorms{
    row(NormVariant::kPostAttention, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    row(NormVariant::kPostFfn, "blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"),
};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights);
constexpr std::array<std::string_view, 1> kGguf{"olmo2"};
constexpr std::array<std::string_view, 2> kHf{"olmo2", "olmo3"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.attention.qk_norm = plan::QkNorm::kPerRow;
  TRY(read_gguf_windows(keys, {.period_absent = 4}, config));
  // Layers with a window are not scaled, and have a base of their own where the file names one.
  const float base = TRY(keys.real_or("rope.freq_base_swa", static_cast<float>(config.ropes[0].base)));
  config.ropes.push_back({.dims = config.ropes[0].dims, .base = base});
  TRY(check_rope(config.ropes[1], config.attention.d_qk, keys.names()));
  for (LayerConfig& layer : config.layers) layer.rope = layer.window != 0 ? 1 : 0;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F}));
  TRY(demand_attention_biases(keys, config));
  config.attention.qk_norm = plan::QkNorm::kPerRow;
  if (config.architecture == "olmo2") {
    TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
    return config;
  }
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : (n + 1) % 4 != 0;
    if (windowed) config.layers[n].window = window;
  }
  TRY(read_hf_rope_by_window(keys, plan::RopeLayout::kHalf, {.theta_absent = 5e5}, config));
  // A dictionary that is not by type of layer scales the layers without a window alone.
  const auto dictionary = TRY(keys.rope_dictionary());
  if (dictionary && dictionary->kind("sliding_attention") != io::HfKind::kObject)
    config.ropes[1] = {.dims = config.ropes[1].dims, .base = config.ropes[1].base};
  return config;
}

}  // namespace

const Family kOlmo{
    .name = "olmo",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::olmo
