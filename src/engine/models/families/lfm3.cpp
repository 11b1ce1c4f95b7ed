// LFM3: short convolutions, gated attention with and without windows, norms on both sides of each branch.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::lfm3 {
namespace {

enum : std::uint8_t { kConvolves = 0, kAttends = 1, kSandwiched = 2 };
constexpr std::array kConvPlain = block(shortconv(), ffn());
constexpr std::array kConv{norm(NormVariant::kAttention), shortconv(), post_norm(NormVariant::kPostAttention), add(),
                           norm(NormVariant::kFfn),       ffn(),       post_norm(NormVariant::kPostFfn),       add()};
constexpr std::array kAttention{
    norm(NormVariant::kAttention), attention(), post_norm(NormVariant::kPostAttention), add(),
    norm(NormVariant::kFfn),       ffn(),       post_norm(NormVariant::kPostFfn),       add()};
constexpr std::array<LayerTemplate, 4> kLayerTemplates{kConvPlain, kDenseBlock, kConv, kAttention};

constexpr std::array kOthers{
    row(EmbeddingSlot::kWeight, "", "embed_tokens.weight"),
    row(NormVariant::kOutput, "", "embedding_norm.weight"),
    head_row("", "^lm_head.weight"),
    row(NormVariant::kAttention, "", "layers.{}.operator_norm.weight"),
    row(NormVariant::kPostAttention, "", "layers.{}.post_operator_norm.weight"),
    row(NormVariant::kFfn, "", "layers.{}.ffn_norm.weight"),
    row(NormVariant::kPostFfn, "", "layers.{}.post_ffn_norm.weight"),
    optional_row(AttentionSlot::kGate, "", "layers.{}.self_attn.gate_proj.weight"),
    optional_row(AttentionSlot::kGate, "", "layers.{}.self_attn.g_proj.weight"),
    row(ShortconvSlot::kInProj, "", "layers.{}.conv.in_proj.weight"),
    row(ShortconvSlot::kConvWeight, "", Source("layers.{}.conv.conv.weight", Load::kReshaped)),
    row(ShortconvSlot::kOutProj, "", "layers.{}.conv.out_proj.weight"),
    optional_row(ShortconvSlot::kConvBias, "", "layers.{}.conv.conv.bias"),
    optional_row(ShortconvSlot::kInBias, "", "layers.{}.conv.in_proj.bias"),
    optional_row(ShortconvSlot::kOutBias, "", "layers.{}.conv.out_proj.bias"),
    row(FfnSlot::kGate, "", "layers.{}.feed_forward.w1.weight"),
    row(FfnSlot::kUp, "", "layers.{}.feed_forward.w3.weight"),
    row(FfnSlot::kDown, "", "layers.{}.feed_forward.w2.weight"),
};
constexpr auto kWeights = concat(kOthers, kAttentionWeights, kAttentionBiases, kHeadNorms);
constexpr std::array<std::string_view, 1> kHf{"lfm3"};

base::Result<> read_layers(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t window = TRY(read_hf_window(keys, 256));
  const bool sandwiched = TRY(keys.text().boolean_or("use_sandwich_norm", true));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : n % 4 == 0 && n != 0;
    const bool attends = types ? windowed || (*types)[n] == HfLayerType::kAttention : n % 2 == 0 && n != 0;
    layer.layer_template =
        static_cast<std::uint8_t>((attends ? kAttends : kConvolves) + (sandwiched ? kSandwiched : 0));
    if (!attends) layer.heads = layer.kv_heads = 0;
    if (windowed) layer.window = window;
  }
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{
      .heads = 16, .kv_heads = 4, .head_dim = 128, .eps = 1e-5F, .eps_key = "norm_eps", .tied = true};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(read_hf_ffn(keys, config));
  TRY(demand_attention_biases(keys, config));
  TRY(demand_if(keys, "use_attention_gate", true, Opcode::kMultiheadAttention, {slot_number(AttentionSlot::kGate)},
                config));
  TRY(read_layers(keys, config));
  config.shortconv.l_cache = TRY(keys.count_or("conv_L_cache", 7));
  TRY(check_taps(keys.key("conv_L_cache"), config.shortconv.l_cache));
  TRY(demand_if(keys, "conv_bias", false, Opcode::kShortconv,
                {slot_number(ShortconvSlot::kConvBias), slot_number(ShortconvSlot::kInBias),
                 slot_number(ShortconvSlot::kOutBias)},
                config));
  TRY(read_hf_rope_by_window(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kLfm3{
    .name = "lfm3",
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::lfm3
