#pragma once
// What most families share: the names of attention and feed-forward weights, the usual layer templates, and the building
// blocks of weight tables.
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "engine/models/family.h"

namespace llorch::engine::models::families {

using plan::AttentionSlot;
using plan::EmbeddingSlot;
using plan::FfnSlot;
using plan::GatedDeltaSlot;
using plan::IndexSlot;
using plan::LayerInputSlot;
using plan::LmHeadSlot;
using plan::MambaSlot;
using plan::MlaSlot;
using plan::MoeSlot;
using plan::NormSlot;
using plan::Opcode;
using plan::PositionEmbeddingSlot;
using plan::ShortconvSlot;

template <class Slot>
constexpr WeightRow weight(Opcode opcode, Slot slot, Source gguf, Source hf) {
  return {.opcode = opcode, .slot = static_cast<std::uint8_t>(slot), .gguf = gguf, .hf = hf};
}
constexpr WeightRow row(EmbeddingSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kEmbedding, slot, gguf, hf);
}
constexpr WeightRow row(PositionEmbeddingSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kPositionEmbedding, slot, gguf, hf);
}
constexpr WeightRow row(AttentionSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kMultiheadAttention, slot, gguf, hf);
}
constexpr WeightRow row(FfnSlot slot, Source gguf, Source hf) { return weight(Opcode::kSwiglu, slot, gguf, hf); }
constexpr WeightRow row(MoeSlot slot, Source gguf, Source hf) { return weight(Opcode::kMoe, slot, gguf, hf); }
constexpr WeightRow row(MlaSlot slot, Source gguf, Source hf) { return weight(Opcode::kMlaAttention, slot, gguf, hf); }
constexpr WeightRow row(MambaSlot slot, Source gguf, Source hf) { return weight(Opcode::kMambaMixer, slot, gguf, hf); }
constexpr WeightRow row(GatedDeltaSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kGatedDelta, slot, gguf, hf);
}
constexpr WeightRow row(IndexSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kLightningIndex, slot, gguf, hf);
}
constexpr WeightRow row(LayerInputSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kLayerInput, slot, gguf, hf);
}
constexpr WeightRow row(ShortconvSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kShortconv, slot, gguf, hf);
}
constexpr WeightRow row(plan::PredictorInputSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kPredictorInput, slot, gguf, hf);
}
constexpr WeightRow row(NormVariant which, Source gguf, Source hf) {
  WeightRow norm_row = weight(Opcode::kRmsNorm, NormSlot::kWeight, gguf, hf);
  norm_row.variant = static_cast<std::uint8_t>(which);
  return norm_row;
}
// Of a LayerNorm.
constexpr WeightRow bias_row(NormVariant which, Source gguf, Source hf) {
  WeightRow bias = weight(Opcode::kRmsNorm, NormSlot::kBias, gguf, hf);
  bias.variant = static_cast<std::uint8_t>(which);
  return bias;
}
constexpr WeightRow optional(WeightRow any) {
  any.required = false;
  return any;
}
template <class Slot>
constexpr WeightRow optional_row(Slot slot, Source gguf, Source hf) {
  return optional(row(slot, gguf, hf));
}
template <std::size_t N>
constexpr std::array<WeightRow, N> required(std::array<WeightRow, N> rows) {
  for (WeightRow& any : rows) any.required = true;
  return rows;
}
template <std::size_t N>
constexpr std::array<WeightRow, N> optional_all(std::array<WeightRow, N> rows) {
  for (WeightRow& any : rows) any.required = false;
  return rows;
}
// A model without one reads its logits off the embedding table, so it is never required.
constexpr WeightRow head_row(Source gguf, Source hf) {
  return optional(weight(Opcode::kLmHead, LmHeadSlot::kWeight, gguf, hf));
}

constexpr WeightRow head_bias_row(Source gguf, Source hf) {
  return weight(Opcode::kLmHead, LmHeadSlot::kBias, gguf, hf);
}

template <class T, std::size_t... N>
constexpr auto concat(const std::array<T, N>&... arrays) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    constexpr std::array<std::size_t, sizeof...(N)> sizes{N...};
    const std::array<const T*, sizeof...(N)> starts{arrays.data()...};
    const auto pick = [&](std::size_t i) {
      std::size_t a = 0;
      for (; i >= sizes[a]; ++a) i -= sizes[a];
      return starts[a][i];
    };
    return std::array<T, (N + ...)>{pick(I)...};
  }
  (std::make_index_sequence<(N + ...)>());
}

// A mixer of rows, then a feed-forward or a mixture, each behind a norm.
constexpr std::array<LayerOp, 6> block(LayerOp mixer, LayerOp part) {
  return {norm(NormVariant::kAttention), mixer, add(), norm(NormVariant::kFfn), part, add()};
}
inline constexpr std::array kDenseBlock = block(attention(), ffn());
inline constexpr std::array kMoeBlock = block(attention(), moe());
// Both branches read the residual stream as it was, behind one norm.
inline constexpr std::array kOneNormBlock{side_norm(NormVariant::kAttention), of_side(attention()), add(),
                                          of_side(ffn()), add()};
// The same, each behind a norm of its own.
inline constexpr std::array kSideBySideBlock{
    norm(NormVariant::kAttention), to_side(attention()), norm(NormVariant::kFfn), ffn(), add_side(), add()};
// With norms ahead of each branch and behind it.
inline constexpr std::array kDenseBetweenNorms{
    norm(NormVariant::kAttention), attention(), post_norm(NormVariant::kPostAttention), add(),
    norm(NormVariant::kFfn),       ffn(),       post_norm(NormVariant::kPostFfn),       add()};

inline constexpr std::array kGlobalWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embed_tokens.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "norm.weight"),
    head_row("output.weight", "^lm_head.weight"),
    head_row("", "^language_model.lm_head.weight"),
};

inline constexpr std::array kBlockNorms{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"),
};

inline constexpr std::array kAttentionWeights{
    row(AttentionSlot::kQ, "blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"),
    row(AttentionSlot::kK, "blk.{}.attn_k.weight", "layers.{}.self_attn.k_proj.weight"),
    row(AttentionSlot::kV, "blk.{}.attn_v.weight", "layers.{}.self_attn.v_proj.weight"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"),
};

inline constexpr std::array kQkvBiases{
    optional_row(AttentionSlot::kQBias, "blk.{}.attn_q.bias", "layers.{}.self_attn.q_proj.bias"),
    optional_row(AttentionSlot::kKBias, "blk.{}.attn_k.bias", "layers.{}.self_attn.k_proj.bias"),
    optional_row(AttentionSlot::kVBias, "blk.{}.attn_v.bias", "layers.{}.self_attn.v_proj.bias"),
};
inline constexpr std::array kOutputBias{
    optional_row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "layers.{}.self_attn.o_proj.bias"),
};
inline constexpr auto kAttentionBiases = concat(kQkvBiases, kOutputBias);

// Queries, keys and values in one matrix; the second one their biases. `hf` is where Hugging Face has them, "": apart.
constexpr std::array<WeightRow, 3> fused_qkv(Source hf) {
  const Source gguf("blk.{}.attn_qkv.weight", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV);
  return {row(AttentionSlot::kQ, gguf, hf), row(AttentionSlot::kK, gguf, hf), row(AttentionSlot::kV, gguf, hf)};
}
constexpr std::array<WeightRow, 3> fused_qkv_biases(Source hf) {
  const Source gguf("blk.{}.attn_qkv.bias", Load::kRows, AttentionSlot::kQBias, AttentionSlot::kVBias);
  return {row(AttentionSlot::kQBias, gguf, hf), row(AttentionSlot::kKBias, gguf, hf),
          row(AttentionSlot::kVBias, gguf, hf)};
}

// Ahead of each branch and behind it, as Gemma has them.
inline constexpr std::array kNormsOnBothSides{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kPostAttention, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.pre_feedforward_layernorm.weight"),
    row(NormVariant::kPostFfn, "blk.{}.post_ffw_norm.weight", "layers.{}.post_feedforward_layernorm.weight"),
};

inline constexpr std::array kHeadNorms{
    row(AttentionSlot::kQNorm, "blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_norm.weight"),
    row(AttentionSlot::kKNorm, "blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_norm.weight"),
};

// What a family's Hugging Face files call the matrices of a feed-forward; in GGUF all call them alike.
struct FfnNames {
  const char* gate;
  const char* up;
  const char* down;
};
constexpr std::array<WeightRow, 3> ffn_weights(const FfnNames& hf) {
  return {row(FfnSlot::kGate, "blk.{}.ffn_gate.weight", hf.gate), row(FfnSlot::kUp, "blk.{}.ffn_up.weight", hf.up),
          row(FfnSlot::kDown, "blk.{}.ffn_down.weight", hf.down)};
}
// Of experts, each with tensors of its own.
constexpr std::array<WeightRow, 3> expert_weights(const FfnNames& hf) {
  return {row(MoeSlot::kGate, "blk.{}.ffn_gate_exps.weight", Source(hf.gate, Load::kStack)),
          row(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight", Source(hf.up, Load::kStack)),
          row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight", Source(hf.down, Load::kStack))};
}
constexpr std::array<WeightRow, 3> shared_expert_weights(const FfnNames& hf) {
  return {row(MoeSlot::kSharedGate, "blk.{}.ffn_gate_shexp.weight", hf.gate),
          row(MoeSlot::kSharedUp, "blk.{}.ffn_up_shexp.weight", hf.up),
          row(MoeSlot::kSharedDown, "blk.{}.ffn_down_shexp.weight", hf.down)};
}

inline constexpr auto kFfnWeights = ffn_weights({.gate = "layers.{}.mlp.gate_proj.weight",
                                                 .up = "layers.{}.mlp.up_proj.weight",
                                                 .down = "layers.{}.mlp.down_proj.weight"});
inline constexpr auto kMixtralExperts = expert_weights({.gate = "layers.{}.block_sparse_moe.experts.{}.w1.weight",
                                                        .up = "layers.{}.block_sparse_moe.experts.{}.w3.weight",
                                                        .down = "layers.{}.block_sparse_moe.experts.{}.w2.weight"});
inline constexpr auto kExpertWeights = expert_weights({.gate = "layers.{}.mlp.experts.{}.gate_proj.weight",
                                                       .up = "layers.{}.mlp.experts.{}.up_proj.weight",
                                                       .down = "layers.{}.mlp.experts.{}.down_proj.weight"});
// Experts that a sigmoid and a selection bias choose, and shared ones.
inline constexpr auto kRoutedExperts = concat(
    std::array{
        row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.gate.weight"),
        optional_row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias", "layers.{}.mlp.gate.e_score_correction_bias")},
    kExpertWeights,
    optional_all(shared_expert_weights({.gate = "layers.{}.mlp.shared_experts.gate_proj.weight",
                                        .up = "layers.{}.mlp.shared_experts.up_proj.weight",
                                        .down = "layers.{}.mlp.shared_experts.down_proj.weight"})));

// Of a layer that predicts a further token, where it is the layer past the last.
inline constexpr std::array kPredictorPastLast{
    row(plan::PredictorInputSlot::kEmbeddingNorm, "blk.{}.nextn.enorm.weight", "layers.{}.enorm.weight"),
    row(plan::PredictorInputSlot::kHiddenNorm, "blk.{}.nextn.hnorm.weight", "layers.{}.hnorm.weight"),
    row(plan::PredictorInputSlot::kWeight, "blk.{}.nextn.eh_proj.weight", "layers.{}.eh_proj.weight"),
    row(NormVariant::kPredictor, "blk.{}.nextn.shared_head_norm.weight", "layers.{}.shared_head.norm.weight"),
};

constexpr WeightRow experts_together(MoeSlot slot) {
  return row(slot, "", Source("layers.{}.mlp.experts.gate_up_proj", Load::kRows, MoeSlot::kGate, MoeSlot::kUp));
}
// Experts under the usual names, apart or together.
inline constexpr auto kSoftmaxExperts =
    concat(std::array{row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.gate.weight")}, kExpertWeights,
           // As transformers 5 holds them in memory.
           std::array{experts_together(MoeSlot::kGate), experts_together(MoeSlot::kUp),
                      row(MoeSlot::kDown, "", "layers.{}.mlp.experts.down_proj")});
// A shared expert whose output is weighed by the sigmoid of a number.
inline constexpr auto kGatedSharedExpert =
    concat(std::array{row(MoeSlot::kSharedRouter, Source("blk.{}.ffn_gate_inp_shexp.weight", Load::kReshaped),
                          "layers.{}.mlp.shared_expert_gate.weight")},
           shared_expert_weights({.gate = "layers.{}.mlp.shared_expert.gate_proj.weight",
                                  .up = "layers.{}.mlp.shared_expert.up_proj.weight",
                                  .down = "layers.{}.mlp.shared_expert.down_proj.weight"}));

}  // namespace llorch::engine::models::families
