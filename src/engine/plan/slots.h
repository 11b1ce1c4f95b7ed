#pragma once
// Which weights an opcode takes, in which order, of which shape. The compiler, the loader and the adapters read only this.
//
// An instruction has exactly one WeightRef per slot of its opcode; an optional slot without a tensor holds kAbsentWeight.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/plan/opcode.h"
#include "engine/plan/params.h"

namespace llorch::engine::plan {

// Symbolic dimensions; dim_value() gives the number from an instruction's param block.
enum class Dim : std::uint8_t {
  kNone,
  kModel,      // D
  kVocab,      // V, rows of the embedding table
  kPositions,  // rows of the table of positions
  kTypes,      // rows of the table of token types
  kQRows,      // H * d_qk
  kQNorm,      // d_qk, or H * d_qk of a norm over the row
  kKNorm,      // d_qk, or K * d_qk
  kGateRows,   // H, or H * d_v of a gate per element
  kOne,
  kKRows,        // K * d_qk
  kVRows,        // K * d_v
  kOCols,        // H * d_v
  kHeads,        // H
  kFfn,          // F
  kExperts,      // E
  kFfnExpert,    // F of one expert
  kFfnShared,    // F of the shared expert
  kLatent,       // what routed experts read and write, where that is not D
  kExpertWidth,  // the same, or D
  kInner,        // mamba: d_inner
  kConvRows,     // mamba: d_inner + 2 * groups * d_state
  kMixerRows,    // rows of a mixer's in_proj: mamba d_inner + kConvRows + heads; shortconv 3D
  kTaps,         // d_conv, l_cache
  kQLora,
  kQHeadRows,  // mla: H * (d_nope + d_rope)
  kKvLora,
  kKvLoraRope,  // kv_lora + d_rope
  kNope,
  kValue,        // mla: d_v
  kPatchRow,     // elements of a patch row
  kGrid,         // rows of the position table
  kMergeIn,      // merge_size^2 * width_in
  kMergeNorm,    // width the merger's norm works on
  kLayerInputs,  // elements of the inputs of all layers
  kRank,         // of a projection in two steps
  kGateIn,       // what a gate is projected from: D, or the rank
  kDecayIn,      // what decays are: D, or the rank
  kDecayRows,    // gated delta: decays of a row
  kExpertsUsed,  // k
  kMixRows,      // hyper-connections: rows of fn
  kMixScales,    // 3, or 1 where nothing is put back
  kStreams,      // N * D
  kRate,         // rows of a window
  kSeries,       // elements of kv of a row: those of an entry, twice where windows overlap
  kIndexSeries,  // the same of entries that an index reads
  kIndexDim,     // d_index
  kIndexRows,    // index heads * d_index
  kIndexHeads,
  kGroups,     // of heads
  kGroupCols,  // elements of the heads of a group
  kGroupRank,
  kGroupRanks,  // of all groups
  kJoined,      // 2 * D
};

// How a backend will use a tensor; the union over all slots bound to it is given to Backend::upload_weight.
enum class WeightUse : std::uint8_t {
  kMatrix = 1,  // right operand of x * W^T, [out, in] (or a stack of them)
  kRows = 2,    // rows gathered by index
  kVector = 4,  // read element by element, widened to f32 (exact)
};

struct SlotSpec {
  std::string_view name;
  bool required = false;
  WeightUse use = WeightUse::kMatrix;
  std::uint8_t rank = 0;
  std::array<Dim, 4> dims{};  // row-major; a linear weight is [out, in]
};

enum class NormSlot : std::uint8_t { kWeight, kBias, kCount };
enum class AttentionSlot : std::uint8_t {
  kQ,
  kK,
  kV,
  kO,
  kQNorm,
  kKNorm,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kSinks,
  kGate,
  kCount
};
enum class FfnSlot : std::uint8_t { kGate, kUp, kDown, kGateBias, kUpBias, kDownBias, kCount };
enum class MoeSlot : std::uint8_t {
  kRouter,
  kGate,
  kUp,
  kDown,
  kRouterBias,
  kGateBias,
  kUpBias,
  kDownBias,
  kSelectionBias,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedRouter,
  kExpertTable,
  kExpertScale,
  kLatentDown,
  kLatentUp,
  kCount
};
enum class MambaSlot : std::uint8_t {
  kInProj,
  kConvWeight,
  kA,
  kDSkip,
  kOutProj,
  kConvBias,
  kDtBias,
  kNorm,
  kInBias,
  kOutBias,
  kCount
};
enum class GatedDeltaSlot : std::uint8_t {
  kQkv,
  kZ,
  kBeta,
  kDecay,
  kConvWeight,
  kA,
  kDtBias,
  kNorm,
  kOutProj,
  kZA,
  kDecayA,
  kCount
};
enum class ShortconvSlot : std::uint8_t { kInProj, kConvWeight, kOutProj, kConvBias, kInBias, kOutBias, kCount };
enum class MlaSlot : std::uint8_t {
  kQ,
  kQA,
  kQANorm,
  kQB,
  kKvA,
  kKvANorm,
  kKB,
  kVB,
  kO,
  kQABias,
  kKvABias,
  kOBias,
  kCount
};
enum class EmbeddingSlot : std::uint8_t { kWeight, kCount };
enum class PositionEmbeddingSlot : std::uint8_t { kPositions, kTypes, kCount };
enum class DenseSlot : std::uint8_t { kWeight, kBias, kCount };
enum class LmHeadSlot : std::uint8_t { kWeight, kBias, kCount };
enum class IndexSlot : std::uint8_t { kQA, kQANorm, kQB, kK, kKNorm, kKNormBias, kWeights, kQABias, kCount };
enum class LayerInputSlot : std::uint8_t { kGate, kProj, kContext, kNorm, kTable, kCount };
enum class HyperSlot : std::uint8_t { kFn, kBase, kScale, kCount };
enum class CompressorSlot : std::uint8_t {
  kKv,
  kGate,
  kBias,
  kNorm,
  kIndexKv,
  kIndexGate,
  kIndexBias,
  kIndexNorm,
  kCount
};
enum class CompressedAttentionSlot : std::uint8_t {
  kQA,
  kQANorm,
  kQB,
  kKv,
  kKvNorm,
  kSinks,
  kOA,
  kOB,
  kIndexQ,
  kIndexWeights,
  kCount
};
enum class PredictorInputSlot : std::uint8_t { kEmbeddingNorm, kHiddenNorm, kWeight, kCount };
enum class PatchEmbedSlot : std::uint8_t { kWeight, kBias, kPositions, kCount };
enum class SpatialMergeSlot : std::uint8_t { kNorm, kNormBias, kFc1, kFc1Bias, kFc2, kFc2Bias, kCount };

namespace slot_tables {
using enum Dim;
inline constexpr auto kMat = WeightUse::kMatrix;
inline constexpr auto kVec = WeightUse::kVector;
// clang-format off
inline constexpr std::array<SlotSpec, 2> kNorm{{
    {"w", true, kVec, 1, {kModel}}, {"b", false, kVec, 1, {kModel}}}};
// Weights fused in a file (q|k|v, gate|up, the two halves of MLA's kv_b) are bound as slices: no slot holds two operands.
// k and v are there unless the layer reads another one's cache.
inline constexpr std::array<SlotSpec, 12> kAttention{{
    {"q", true, kMat, 2, {kQRows, kModel}}, {"k", false, kMat, 2, {kKRows, kModel}}, {"v", false, kMat, 2, {kVRows, kModel}},
    {"o", true, kMat, 2, {kModel, kOCols}}, {"q_norm", false, kVec, 1, {kQNorm}}, {"k_norm", false, kVec, 1, {kKNorm}},
    {"q_bias", false, kVec, 1, {kQRows}}, {"k_bias", false, kVec, 1, {kKRows}}, {"v_bias", false, kVec, 1, {kVRows}},
    {"o_bias", false, kVec, 1, {kModel}}, {"sinks", false, kVec, 1, {kHeads}},
    {"gate", false, kMat, 2, {kGateRows, kModel}}}};
inline constexpr std::array<SlotSpec, 6> kFfnSlots{{
    {"gate", false, kMat, 2, {kFfn, kModel}}, {"up", true, kMat, 2, {kFfn, kModel}}, {"down", true, kMat, 2, {kModel, kFfn}},
    {"gate_bias", false, kVec, 1, {kFfn}}, {"up_bias", false, kVec, 1, {kFfn}}, {"down_bias", false, kVec, 1, {kModel}}}};
inline constexpr std::array<SlotSpec, 17> kMoe{{
    {"router", true, kMat, 2, {kExperts, kModel}}, {"gate", false, kMat, 3, {kExperts, kFfnExpert, kExpertWidth}},
    {"up", true, kMat, 3, {kExperts, kFfnExpert, kExpertWidth}}, {"down", true, kMat, 3, {kExperts, kExpertWidth, kFfnExpert}},
    {"router_bias", false, kVec, 1, {kExperts}}, {"gate_bias", false, kVec, 2, {kExperts, kFfnExpert}},
    {"up_bias", false, kVec, 2, {kExperts, kFfnExpert}}, {"down_bias", false, kVec, 2, {kExperts, kExpertWidth}},
    {"selection_bias", false, kVec, 1, {kExperts}}, {"shared_gate", false, kMat, 2, {kFfnShared, kModel}},
    {"shared_up", false, kMat, 2, {kFfnShared, kModel}}, {"shared_down", false, kMat, 2, {kModel, kFfnShared}},
    {"shared_router", false, kMat, 2, {kOne, kModel}}, {"expert_table", false, kVec, 2, {kVocab, kExpertsUsed}},
    {"expert_scale", false, kVec, 1, {kExperts}}, {"latent_down", false, kMat, 2, {kLatent, kModel}},
    {"latent_up", false, kMat, 2, {kModel, kLatent}}}};
// `a` is -exp(A_log). conv_w is [channel][tap], the last tap meets the newest row.
inline constexpr std::array<SlotSpec, 10> kMamba{{
    {"in_proj", true, kMat, 2, {kMixerRows, kModel}}, {"conv_w", true, kVec, 2, {kConvRows, kTaps}}, {"a", true, kVec, 1, {kHeads}},
    {"d_skip", true, kVec, 1, {kHeads}}, {"out_proj", true, kMat, 2, {kModel, kInner}}, {"conv_b", false, kVec, 1, {kConvRows}},
    {"dt_bias", true, kVec, 1, {kHeads}}, {"norm", true, kVec, 1, {kInner}}, {"in_bias", false, kVec, 1, {kMixerRows}},
    {"out_bias", false, kVec, 1, {kModel}}}};
// `a` is -exp(A_log); rows of qkv are all query heads, then all key heads, then all value heads.
// z_a and decay_a are there when z and decay are projected in two steps.
inline constexpr std::array<SlotSpec, 11> kGatedDelta{{
    {"qkv", true, kMat, 2, {kConvRows, kModel}}, {"z", true, kMat, 2, {kInner, kGateIn}}, {"beta", true, kMat, 2, {kHeads, kModel}},
    {"decay", true, kMat, 2, {kDecayRows, kDecayIn}}, {"conv_w", true, kVec, 2, {kConvRows, kTaps}}, {"a", true, kVec, 1, {kHeads}},
    {"dt_bias", true, kVec, 1, {kDecayRows}}, {"norm", true, kVec, 1, {kValue}}, {"out_proj", true, kMat, 2, {kModel, kInner}},
    {"z_a", false, kMat, 2, {kRank, kModel}}, {"decay_a", false, kMat, 2, {kRank, kModel}}}};
inline constexpr std::array<SlotSpec, 6> kShortconv{{
    {"in_proj", true, kMat, 2, {kMixerRows, kModel}}, {"conv_w", true, kVec, 2, {kModel, kTaps}},
    {"out_proj", true, kMat, 2, {kModel, kModel}}, {"conv_b", false, kVec, 1, {kModel}},
    {"in_bias", false, kVec, 1, {kMixerRows}}, {"out_bias", false, kVec, 1, {kModel}}}};
// Exactly one of q and (q_a, q_a_norm, q_b). Per head h: k_b[h] maps q_nope to the compressed space (its transpose maps
// c to the head's key), v_b[h] maps c to the head's value.
inline constexpr std::array<SlotSpec, 12> kMla{{
    {"q", false, kMat, 2, {kQHeadRows, kModel}}, {"q_a", false, kMat, 2, {kQLora, kModel}}, {"q_a_norm", false, kVec, 1, {kQLora}},
    {"q_b", false, kMat, 2, {kQHeadRows, kQLora}}, {"kv_a", true, kMat, 2, {kKvLoraRope, kModel}},
    {"kv_a_norm", true, kVec, 1, {kKvLora}}, {"k_b", true, kMat, 3, {kHeads, kKvLora, kNope}},
    {"v_b", true, kMat, 3, {kHeads, kValue, kKvLora}}, {"o", true, kMat, 2, {kModel, kOCols}},
    {"q_a_bias", false, kVec, 1, {kQLora}}, {"kv_a_bias", false, kVec, 1, {kKvLoraRope}}, {"o_bias", false, kVec, 1, {kModel}}}};
inline constexpr std::array<SlotSpec, 1> kEmbedding{{{"w", true, WeightUse::kRows, 2, {kVocab, kModel}}}};
inline constexpr std::array<SlotSpec, 2> kPositionEmbedding{{
    {"positions", false, kVec, 2, {kPositions, kModel}}, {"types", false, kVec, 2, {kTypes, kModel}}}};
inline constexpr std::array<SlotSpec, 2> kDense{{{"w", true, kMat, 2, {kVocab, kModel}}, {"b", false, kVec, 1, {kVocab}}}};
inline constexpr std::array<SlotSpec, 2> kLmHead{{{"w", true, kMat, 2, {kVocab, kModel}}, {"b", false, kVec, 1, {kVocab}}}};
inline constexpr std::array<SlotSpec, 8> kIndex{{
    {"q_a", true, kMat, 2, {kQLora, kModel}}, {"q_a_norm", true, kVec, 1, {kQLora}}, {"q_b", true, kMat, 2, {kQHeadRows, kQLora}},
    {"k", true, kMat, 2, {kValue, kModel}}, {"k_norm", true, kVec, 1, {kValue}}, {"k_norm_b", true, kVec, 1, {kValue}},
    {"weights", true, kMat, 2, {kHeads, kModel}}, {"q_a_bias", false, kVec, 1, {kQLora}}}};
inline constexpr std::array<SlotSpec, 5> kLayerInput{{
    {"gate", true, kMat, 2, {kInner, kModel}}, {"proj", true, kMat, 2, {kModel, kInner}}, {"context", true, kMat, 2, {kInner, kModel}},
    {"norm", true, kVec, 1, {kInner}}, {"table", true, WeightUse::kRows, 2, {kVocab, Dim::kLayerInputs}}}};
inline constexpr std::array<SlotSpec, 3> kHyper{{
    {"fn", true, kMat, 2, {kMixRows, kStreams}}, {"base", true, kVec, 1, {kMixRows}}, {"scale", true, kVec, 1, {kMixScales}}}};
inline constexpr std::array<SlotSpec, 8> kCompressor{{
    {"kv", true, kMat, 2, {kSeries, kModel}}, {"gate", true, kMat, 2, {kSeries, kModel}}, {"bias", true, kVec, 2, {kRate, kSeries}},
    {"norm", true, kVec, 1, {kValue}}, {"index_kv", false, kMat, 2, {kIndexSeries, kModel}},
    {"index_gate", false, kMat, 2, {kIndexSeries, kModel}}, {"index_bias", false, kVec, 2, {kRate, kIndexSeries}},
    {"index_norm", false, kVec, 1, {kIndexDim}}}};
inline constexpr std::array<SlotSpec, 10> kCompressedAttention{{
    {"q_a", true, kMat, 2, {kQLora, kModel}}, {"q_a_norm", true, kVec, 1, {kQLora}}, {"q_b", true, kMat, 2, {kQHeadRows, kQLora}},
    {"kv", true, kMat, 2, {kValue, kModel}}, {"kv_norm", true, kVec, 1, {kValue}}, {"sinks", true, kVec, 1, {kHeads}},
    {"o_a", true, kMat, 3, {kGroups, kGroupRank, kGroupCols}}, {"o_b", true, kMat, 2, {kModel, kGroupRanks}},
    {"index_q", false, kMat, 2, {kIndexRows, kQLora}}, {"index_weights", false, kMat, 2, {kIndexHeads, kModel}}}};
inline constexpr std::array<SlotSpec, 3> kPredictorInput{{
    {"embedding_norm", true, kVec, 1, {kModel}}, {"hidden_norm", true, kVec, 1, {kModel}}, {"w", true, kMat, 2, {kModel, Dim::kJoined}}}};
inline constexpr std::array<SlotSpec, 3> kPatchEmbed{{
    {"w", true, kMat, 2, {kModel, kPatchRow}}, {"b", false, kVec, 1, {kModel}}, {"positions", true, kVec, 2, {kGrid, kModel}}}};
inline constexpr std::array<SlotSpec, 6> kSpatialMerge{{
    {"norm", true, kVec, 1, {kMergeNorm}}, {"norm_b", false, kVec, 1, {kMergeNorm}}, {"fc1", true, kMat, 2, {kMergeIn, kMergeIn}},
    {"fc1_b", false, kVec, 1, {kMergeIn}}, {"fc2", true, kMat, 2, {kModel, kMergeIn}}, {"fc2_b", false, kVec, 1, {kModel}}}};
// clang-format on

template <class Slot, std::size_t N>
constexpr bool counts(const std::array<SlotSpec, N>&) {
  return N == static_cast<std::size_t>(Slot::kCount);
}
static_assert(counts<NormSlot>(kNorm) && counts<AttentionSlot>(kAttention) && counts<FfnSlot>(kFfnSlots) &&
              counts<MoeSlot>(kMoe) && counts<MambaSlot>(kMamba) && counts<ShortconvSlot>(kShortconv) &&
              counts<MlaSlot>(kMla) && counts<GatedDeltaSlot>(kGatedDelta) && counts<EmbeddingSlot>(kEmbedding) &&
              counts<PositionEmbeddingSlot>(kPositionEmbedding) && counts<DenseSlot>(kDense) &&
              counts<LmHeadSlot>(kLmHead) && counts<LayerInputSlot>(kLayerInput) && counts<IndexSlot>(kIndex) &&
              counts<HyperSlot>(kHyper) && counts<CompressorSlot>(kCompressor) &&
              counts<CompressedAttentionSlot>(kCompressedAttention) && counts<PredictorInputSlot>(kPredictorInput) &&
              counts<PatchEmbedSlot>(kPatchEmbed) && counts<SpatialMergeSlot>(kSpatialMerge));
}  // namespace slot_tables

// The slots of `opcode`, in order; nullopt when the value is no opcode.
constexpr std::optional<std::span<const SlotSpec>> weight_slots(Opcode opcode) {
  using Slots = std::span<const SlotSpec>;
  switch (opcode) {
    case Opcode::kRmsNorm: return Slots(slot_tables::kNorm);
    case Opcode::kMultiheadAttention: return Slots(slot_tables::kAttention);
    case Opcode::kSwiglu: return Slots(slot_tables::kFfnSlots);
    case Opcode::kMoe: return Slots(slot_tables::kMoe);
    case Opcode::kMambaMixer: return Slots(slot_tables::kMamba);
    case Opcode::kShortconv: return Slots(slot_tables::kShortconv);
    case Opcode::kGatedDelta: return Slots(slot_tables::kGatedDelta);
    case Opcode::kMlaAttention: return Slots(slot_tables::kMla);
    case Opcode::kEmbedding: return Slots(slot_tables::kEmbedding);
    case Opcode::kLmHead: return Slots(slot_tables::kLmHead);
    case Opcode::kPositionEmbedding: return Slots(slot_tables::kPositionEmbedding);
    case Opcode::kDense: return Slots(slot_tables::kDense);
    case Opcode::kLayerInput: return Slots(slot_tables::kLayerInput);
    case Opcode::kLightningIndex: return Slots(slot_tables::kIndex);
    case Opcode::kHyperCollapse:
    case Opcode::kHyperAdd: return Slots(slot_tables::kHyper);
    case Opcode::kCompressor: return Slots(slot_tables::kCompressor);
    case Opcode::kCompressedAttention: return Slots(slot_tables::kCompressedAttention);
    case Opcode::kPredictorInput: return Slots(slot_tables::kPredictorInput);
    case Opcode::kVisionPatchEmbed: return Slots(slot_tables::kPatchEmbed);
    case Opcode::kVisionSpatialMerge: return Slots(slot_tables::kSpatialMerge);
    case Opcode::kVisionDeepstackExtract: return Slots(slot_tables::kSpatialMerge);
    case Opcode::kResidualAdd:
    case Opcode::kPool:
    case Opcode::kVisionScatter: return Slots();
  }
  return std::nullopt;
}

// The number `dim` stands for in an instruction with these params; nullopt for kAny and for what the opcode does not define.
// REQUIRES: params.data holds the struct of params.opcode.
std::optional<std::uint32_t> dim_value(Dim dim, const ParamBlock& params);

}  // namespace llorch::engine::plan
