#pragma once
// The only place that says which opcode an operation becomes.
#include <array>
#include <optional>

#include "engine/models/plan_compiler/op_types.h"
#include "engine/plan/opcode.h"

namespace llorch::engine::models {

constexpr plan::Opcode opcode_of(OpType type) {
  using plan::Opcode;
  switch (type) {
    case OpType::kEmbedding: return Opcode::kEmbedding;
    case OpType::kNorm: return Opcode::kRmsNorm;
    case OpType::kAttention: return Opcode::kMultiheadAttention;
    case OpType::kMlaAttention: return Opcode::kMlaAttention;
    case OpType::kFfn: return Opcode::kSwiglu;
    case OpType::kMoe: return Opcode::kMoe;
    case OpType::kMambaMixer: return Opcode::kMambaMixer;
    case OpType::kGatedDelta: return Opcode::kGatedDelta;
    case OpType::kShortconv: return Opcode::kShortconv;
    case OpType::kAdd: return Opcode::kResidualAdd;
    case OpType::kLmHead: return Opcode::kLmHead;
    case OpType::kPool: return Opcode::kPool;
    case OpType::kPositionEmbedding: return Opcode::kPositionEmbedding;
    case OpType::kDense: return Opcode::kDense;
    case OpType::kLayerInput: return Opcode::kLayerInput;
    case OpType::kLightningIndex: return Opcode::kLightningIndex;
    case OpType::kHyperCollapse: return Opcode::kHyperCollapse;
    case OpType::kHyperAdd: return Opcode::kHyperAdd;
    case OpType::kCompressor: return Opcode::kCompressor;
    case OpType::kCompressedAttention: return Opcode::kCompressedAttention;
    case OpType::kPredictorInput: return Opcode::kPredictorInput;
    case OpType::kVisionPatchEmbed: return Opcode::kVisionPatchEmbed;
    case OpType::kVisionSpatialMerge: return Opcode::kVisionSpatialMerge;
    case OpType::kVisionDeepstackExtract: return Opcode::kVisionDeepstackExtract;
    case OpType::kVisionScatter: return Opcode::kVisionScatter;
    case OpType::kCount: break;
  }
  return static_cast<Opcode>(0xFF);
}

constexpr std::optional<OpType> op_type_of(plan::Opcode opcode) {
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(OpType::kCount); ++i) {
    if (opcode_of(static_cast<OpType>(i)) == opcode) return static_cast<OpType>(i);
  }
  return std::nullopt;
}

// Total, injective, with a round trip, and onto: every opcode is some operation.
consteval bool opcode_map_is_bijective() {
  std::size_t mapped = 0;
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(OpType::kCount); ++i) {
    const auto type = static_cast<OpType>(i);
    if (!plan::is_opcode(opcode_of(type)) || op_type_of(opcode_of(type)) != type) return false;
    ++mapped;
  }
  return mapped == plan::kOpcodes.size();
}
static_assert(opcode_map_is_bijective());

}  // namespace llorch::engine::models
