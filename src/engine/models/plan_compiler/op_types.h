#pragma once
// The operations a layer template is written in. One per opcode; the map is plan_compiler/opcode_map.h.
#include <cstdint>

namespace llorch::engine::models {

enum class OpType : std::uint8_t {
  kEmbedding,
  kNorm,
  kAttention,
  kMlaAttention,
  kFfn,
  kMoe,
  kMambaMixer,
  kGatedDelta,
  kShortconv,
  kAdd,
  kLmHead,
  kPool,
  kPositionEmbedding,
  kDense,
  kLayerInput,
  kLightningIndex,
  kHyperCollapse,
  kHyperAdd,
  kCompressor,
  kCompressedAttention,
  kPredictorInput,
  kVisionPatchEmbed,
  kVisionSpatialMerge,
  kVisionDeepstackExtract,
  kVisionScatter,
  kCount,
};

}  // namespace llorch::engine::models
