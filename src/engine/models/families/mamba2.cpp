// Mamba-2 alone: no attention, no feed-forward, no positions.
#include "engine/models/families/families.h"
#include "engine/models/families/mamba.h"

namespace llorch::engine::models::families::mamba2 {
namespace {

constexpr std::array kBlock{norm(NormVariant::kAttention), mamba_mixer(), add()};
constexpr std::array<LayerTemplate, 1> kLayerTemplates{kBlock};

constexpr auto kWeights = concat(kMixersAround, mixer_weights(kMixerNames));

constexpr std::array<std::string_view, 1> kNames{"mamba2"};
constexpr std::array<std::string_view, 1> kHfPrefixes{"backbone."};

// Nothing here counts positions; the converter writes this.
constexpr std::uint32_t kContext = 1U << 20;

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_mamba(keys, config));
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.context = kContext, .eps = 1e-5F, .eps_key = "layer_norm_epsilon"}));
  TRY(read_hf_mamba(keys,
                    {.heads = "num_heads",
                     .head_dim = "head_dim",
                     .state = "state_size",
                     .groups = "n_groups",
                     .groups_absent = 8,
                     .taps = "conv_kernel",
                     .expand = "expand"},
                    config));
  TRY(demand_word(keys, "hidden_act", "silu"));
  TRY(demand_mixer_biases(keys, "use_conv_bias", "use_bias", config));
  config.context_tokens = kContext;  // a max_position_embeddings in the file means nothing
  return config;
}

}  // namespace

const Family kMamba2{
    .name = "mamba2",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_prefixes = kHfPrefixes,
    .gguf_others = "feed_forward_length=0 attention.head_count=0",
    .hf_others =
        "chunk_size residual_in_fp32 time_step_floor time_step_max time_step_min time_step_rank fused_add_norm "
        "rms_norm=true pad_vocab_size_multiple time_step_init_scheme time_step_scale",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::mamba2
