// GGUF architecture `llama`: Llama 1 to 3, Mistral (GGUF carries no window for it) and everything converted to the same names.
#include <array>

#include "engine/models/families/families.h"

namespace llorch::engine::models::families {
namespace {

using contract::AttentionSlot;
using contract::EmbeddingSlot;
using contract::FfnSlot;
using contract::LmHeadSlot;
using contract::NormSlot;
using contract::Opcode;

constexpr std::array kBefore{embedding()};
constexpr std::array kLayer{norm(NormVariant::kAttention), attention(), add(), norm(NormVariant::kFfn), ffn(), add()};
constexpr std::array kAfter{norm(NormVariant::kOutput), lm_head()};

constexpr WeightName attention_weight(AttentionSlot slot, std::string_view name, bool required) {
  return {Opcode::kMultiheadAttention, slot_number(slot), 0, name, required};
}
constexpr WeightName ffn_weight(FfnSlot slot, std::string_view name, bool required) {
  return {Opcode::kSwiglu, slot_number(slot), 0, name, required};
}
constexpr WeightName norm_weight(NormVariant variant, std::string_view name) {
  return {Opcode::kRmsNorm, slot_number(NormSlot::kWeight), static_cast<std::uint8_t>(variant), name, true};
}

constexpr std::array kWeights{
    WeightName{Opcode::kEmbedding, slot_number(EmbeddingSlot::kWeight), 0, "token_embd.weight", true},
    norm_weight(NormVariant::kAttention, "blk.{}.attn_norm.weight"),
    attention_weight(AttentionSlot::kQ, "blk.{}.attn_q.weight", true),
    attention_weight(AttentionSlot::kK, "blk.{}.attn_k.weight", true),
    attention_weight(AttentionSlot::kV, "blk.{}.attn_v.weight", true),
    attention_weight(AttentionSlot::kO, "blk.{}.attn_output.weight", true),
    attention_weight(AttentionSlot::kQBias, "blk.{}.attn_q.bias", false),
    attention_weight(AttentionSlot::kKBias, "blk.{}.attn_k.bias", false),
    attention_weight(AttentionSlot::kVBias, "blk.{}.attn_v.bias", false),
    attention_weight(AttentionSlot::kOBias, "blk.{}.attn_output.bias", false),
    norm_weight(NormVariant::kFfn, "blk.{}.ffn_norm.weight"),
    ffn_weight(FfnSlot::kGate, "blk.{}.ffn_gate.weight", true),
    ffn_weight(FfnSlot::kUp, "blk.{}.ffn_up.weight", true),
    ffn_weight(FfnSlot::kDown, "blk.{}.ffn_down.weight", true),
    ffn_weight(FfnSlot::kGateBias, "blk.{}.ffn_gate.bias", false),
    ffn_weight(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", false),
    ffn_weight(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", false),
    norm_weight(NormVariant::kOutput, "output_norm.weight"),
    WeightName{Opcode::kLmHead, slot_number(LmHeadSlot::kWeight), 0, "output.weight", true, "token_embd.weight"},
};

constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};
// Rotation buffers that early converters wrote out.
constexpr std::array<std::string_view, 1> kIgnored{"blk.{}.attn_rot_embd.weight"};

// The converter permutes q and k rows, so pairs are neighbours whatever the original layout was.
base::Result<ModelConfig> read_config(const io::GgufFile& file) {
  return read_attention_config(file, contract::RopeLayout::kInterleaved);
}

}  // namespace

const Family kLlama{
    .architecture = "llama",
    .before = kBefore,
    .layer = kLayer,
    .after = kAfter,
    .weights = kWeights,
    .claimed = kClaimed,
    .ignored = kIgnored,
    .read_config = read_config,
};

}  // namespace llorch::engine::models::families
