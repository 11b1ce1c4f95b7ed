#pragma once
// The Mamba-2 mixer's weights, which several families have under the same GGUF names.
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {

// Hugging Face names of a family's mixer, layer number in place of {}.
struct MixerNames {
  const char* in_proj;
  const char* in_bias;
  const char* conv;
  const char* conv_bias;
  const char* dt_bias;
  const char* a_log;
  const char* d;
  const char* norm;
  const char* out_proj;
  const char* out_bias;
};

// Where a layer is its mixer.
inline constexpr MixerNames kMixerNames{
    .in_proj = "layers.{}.mixer.in_proj.weight",
    .in_bias = "layers.{}.mixer.in_proj.bias",
    .conv = "layers.{}.mixer.conv1d.weight",
    .conv_bias = "layers.{}.mixer.conv1d.bias",
    .dt_bias = "layers.{}.mixer.dt_bias",
    .a_log = "layers.{}.mixer.A_log",
    .d = "layers.{}.mixer.D",
    .norm = "layers.{}.mixer.norm.weight",
    .out_proj = "layers.{}.mixer.out_proj.weight",
    .out_bias = "layers.{}.mixer.out_proj.bias",
};

constexpr std::array<WeightRow, 10> mixer_weights(const MixerNames& hf) {
  return {
      row(MambaSlot::kInProj, "blk.{}.ssm_in.weight", hf.in_proj),
      row(MambaSlot::kConvWeight, "blk.{}.ssm_conv1d.weight", Source(hf.conv, Load::kReshaped)),
      // GGUF holds -exp(A_log) already.
      row(MambaSlot::kA, Source("blk.{}.ssm_a", Load::kReshaped), Source(hf.a_log, Load::kNegExp)),
      row(MambaSlot::kDSkip, Source("blk.{}.ssm_d", Load::kReshaped), hf.d),
      row(MambaSlot::kOutProj, "blk.{}.ssm_out.weight", hf.out_proj),
      optional_row(MambaSlot::kConvBias, "blk.{}.ssm_conv1d.bias", hf.conv_bias),
      row(MambaSlot::kDtBias, "blk.{}.ssm_dt.bias", hf.dt_bias),
      row(MambaSlot::kNorm, Source("blk.{}.ssm_norm.weight", Load::kReshaped), hf.norm),
      optional_row(MambaSlot::kInBias, "blk.{}.ssm_in.bias", hf.in_bias),
      optional_row(MambaSlot::kOutBias, "blk.{}.ssm_out.bias", hf.out_bias),
  };
}

// Around layers that are mixers.
inline constexpr std::array kMixersAround{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embeddings.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "norm_f.weight"),
    head_row("output.weight", "^lm_head.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.norm.weight"),
};

// The flags of the biases of the convolution and of both projections.
inline base::Result<> demand_mixer_biases(const HfKeys& keys, std::string_view convolution,
                                          std::string_view projections, ModelConfig& config) {
  TRY(demand_if(keys, convolution, true, Opcode::kMambaMixer, {slot_number(MambaSlot::kConvBias)}, config));
  return demand_if(keys, projections, false, Opcode::kMambaMixer,
                   {slot_number(MambaSlot::kInBias), slot_number(MambaSlot::kOutBias)}, config);
}

}  // namespace llorch::engine::models::families
