#pragma once
// What encoders share: rows that see all of their sequence, a LayerNorm of the residual stream behind each branch.
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {

inline constexpr std::array kEncoderBefore{embedding(), position_embedding(), residual_norm(NormVariant::kEmbedding)};
inline constexpr std::array kEncoderBlock{of_residual(attention()), add(), residual_norm(NormVariant::kAttention),
                                          of_residual(ffn()),       add(), residual_norm(NormVariant::kFfn)};
inline constexpr std::array<LayerTemplate, 1> kEncoderTemplates{kEncoderBlock};
inline constexpr std::array kEncoderAfter{of_residual(pool())};

// Basics, and what makes an encoder of it. The types of tokens are counted by their table.
inline base::Result<ModelConfig> read_gguf_encoder(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.attention.causal = false;
  const io::FileTensor* types = keys.files().find_tensor("token_types.weight");
  if (types != nullptr && types->rank == 2) {
    config.token_types = TRY(check_count("rows of token_types.weight", static_cast<std::uint32_t>(types->dims[0])));
  }
  return config;
}

// The same, and heads. The caller sets rotations, then calls finish_attention.
inline base::Result<ModelConfig> read_hf_encoder(const HfKeys& keys, float eps) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = eps, .eps_key = "layer_norm_eps", .tied = true}));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.attention.causal = false;
  config.token_types = TRY(keys.number_or("type_vocab_size", 2));
  TRY(refuse_if(keys, "is_decoder"));
  TRY(read_hf_heads(keys, {}, config));
  return config;
}

}  // namespace llorch::engine::models::families
