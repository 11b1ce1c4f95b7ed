// Phi-3 and Phi-4: fused projections, partial rotation, longrope.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::phi3 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

constexpr WeightRow gate_up(FfnSlot slot) {
  return row(slot, Source("blk.{}.ffn_up.weight", Load::kRows, FfnSlot::kGate, FfnSlot::kUp),
             Source("layers.{}.mlp.gate_up_proj.weight", Load::kRows, FfnSlot::kGate, FfnSlot::kUp));
}
constexpr std::array kBlockWeights{
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"),
    gate_up(FfnSlot::kGate),
    gate_up(FfnSlot::kUp),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.mlp.down_proj.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms,
           fused_qkv(Source("layers.{}.self_attn.qkv_proj.weight", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV)),
           kBlockWeights);

constexpr std::array<std::string_view, 1> kNames{"phi3"};
constexpr std::array<std::string_view, 2> kClaimed{"rope_factors_short.weight", "rope_factors_long.weight"};

// The key of the window is read by nobody who runs these files; its value does not say what the model was trained with.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) { return read_gguf_dense(keys, plan::RopeLayout::kHalf); }

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F}));
  TRY(refuse_if(keys, "attention_bias"));
  const std::uint32_t window = TRY(read_hf_window(keys, 0));
  for (LayerConfig& layer : config.layers) layer.window = window;
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf,
                       {.partial = true, .longrope_aliases = true, .original_absent = 4096}, config));
  return config;
}

}  // namespace

const Family kPhi3{
    .name = "phi3",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .gguf_others = "attention.sliding_window",
    .hf_others =
        "original_max_position_embeddings full_attn_mod=1 interpolate_factor=1 lm_head_bias=false mlp_bias=false",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::phi3
