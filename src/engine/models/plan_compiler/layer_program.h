#pragma once
// A block as a short list of operations on two streams: the residual stream and the branch beside it.
#include <cstdint>
#include <span>

#include "engine/models/plan_compiler/op_types.h"

namespace llorch::engine::models {

// Beside both stands what several branches of one block read, and what the embeddings were.
enum class Stream : std::uint8_t { kResidual, kBranch, kSide, kEmbedded };

// Tells apart the norms of a block; the `variant` of their weights' keys.
enum class NormVariant : std::uint8_t {
  kAttention = 0,
  kFfn = 1,
  kOutput = 2,
  kPostAttention = 3,
  kPostFfn = 4,
  kTowerAttention = 5,
  kTowerFfn = 6,
  kEmbedding = 7,
  kPostLayerInput = 8,
  kDense = 9,  // of a layer with a dense part and experts beside it: behind the one, ahead of and behind the others
  kExperts = 10,
  kPostExperts = 11,
  kRouter = 12,
  kPredictor = 13,  // behind a layer that predicts a further token
};

// The variant of attention and feed-forward in a vision tower.
inline constexpr std::uint8_t kTowerVariant = 1;

struct LayerOp {
  OpType type{};
  std::uint8_t variant = 0;
  Stream in = Stream::kBranch;
  Stream out = Stream::kBranch;
};

using LayerTemplate = std::span<const LayerOp>;

constexpr LayerOp embedding() { return {OpType::kEmbedding, 0, Stream::kResidual, Stream::kResidual}; }
// Of models that have learned positions, or types of tokens.
constexpr LayerOp position_embedding() { return {OpType::kPositionEmbedding, 0, Stream::kResidual, Stream::kResidual}; }
constexpr LayerOp norm(NormVariant which, Stream in = Stream::kResidual) {
  return {OpType::kNorm, static_cast<std::uint8_t>(which), in, Stream::kBranch};
}
// A norm of the branch, behind a mixer.
constexpr LayerOp post_norm(NormVariant which) { return norm(which, Stream::kBranch); }
constexpr LayerOp attention() { return {OpType::kAttention}; }
constexpr LayerOp mla_attention() { return {OpType::kMlaAttention}; }
constexpr LayerOp mamba_mixer() { return {OpType::kMambaMixer}; }
constexpr LayerOp gated_delta() { return {OpType::kGatedDelta}; }
constexpr LayerOp shortconv() { return {OpType::kShortconv}; }
constexpr LayerOp ffn() { return {OpType::kFfn}; }
constexpr LayerOp moe() { return {OpType::kMoe}; }
// residual = residual + residual_scale * branch
constexpr LayerOp add() { return {OpType::kAdd, 0, Stream::kBranch, Stream::kResidual}; }
// The same at the end of a layer whose output is scaled.
inline constexpr std::uint8_t kScaledVariant = 1;
constexpr LayerOp scaled_add() { return {OpType::kAdd, kScaledVariant, Stream::kBranch, Stream::kResidual}; }
// Leaves in the side stream which positions latent attention attends to, in this layer and those behind it that choose none.
constexpr LayerOp lightning_index() { return {OpType::kLightningIndex, 0, Stream::kBranch, Stream::kSide}; }
// Hyper-connections: the residual stream is several, side by side. A branch reads a weighed sum of them, and what it gives goes back into all
// of them. Which branch it is, tells the weights apart.
enum class HyperVariant : std::uint8_t { kAttention = 0, kFfn = 1, kOutput = 2 };
constexpr LayerOp hyper_collapse(HyperVariant which) {
  return {OpType::kHyperCollapse, static_cast<std::uint8_t>(which), Stream::kResidual, Stream::kBranch};
}
constexpr LayerOp hyper_add(HyperVariant which) {
  return {OpType::kHyperAdd, static_cast<std::uint8_t>(which), Stream::kBranch, Stream::kResidual};
}
// Leaves entries in the side stream, which compressed attention keeps.
constexpr LayerOp compressor() { return {OpType::kCompressor, 0, Stream::kBranch, Stream::kSide}; }
constexpr LayerOp compressed_attention() { return {OpType::kCompressedAttention}; }
// What a layer takes from a table of its own, and from the embeddings.
constexpr LayerOp layer_input() { return {OpType::kLayerInput, 0, Stream::kEmbedded, Stream::kBranch}; }
// A norm that several branches read, and a mixer that reads it.
constexpr LayerOp side_norm(NormVariant which) {
  return {OpType::kNorm, static_cast<std::uint8_t>(which), Stream::kResidual, Stream::kSide};
}
// What is put aside, and added to the branch later.
constexpr LayerOp to_side(LayerOp op) {
  op.out = Stream::kSide;
  return op;
}
constexpr LayerOp add_side() { return {OpType::kAdd, 0, Stream::kSide, Stream::kBranch}; }
constexpr LayerOp of_side(LayerOp op) {
  op.in = Stream::kSide;
  return op;
}
// A mixer that takes the residual stream as it is.
constexpr LayerOp of_residual(LayerOp op) {
  op.in = Stream::kResidual;
  return op;
}
constexpr LayerOp lm_head() { return {OpType::kLmHead}; }
// What stays the residual stream: the norms of a model that has them behind each branch.
constexpr LayerOp residual_norm(NormVariant which) {
  return {OpType::kNorm, static_cast<std::uint8_t>(which), Stream::kResidual, Stream::kResidual};
}
// What an embedding model ends with, in place of the head, and linear layers behind it; the number of one is its variant.
constexpr LayerOp pool() { return {OpType::kPool}; }
constexpr LayerOp dense(std::uint8_t number) { return {OpType::kDense, number}; }

// What a layer that predicts a further token begins with.
constexpr LayerOp predictor_input() { return {OpType::kPredictorInput, 0, Stream::kResidual, Stream::kResidual}; }

constexpr LayerOp patch_embed() { return {OpType::kVisionPatchEmbed, 0, Stream::kResidual, Stream::kResidual}; }
constexpr LayerOp tower_attention() { return {OpType::kAttention, kTowerVariant}; }
constexpr LayerOp tower_ffn() { return {OpType::kFfn, kTowerVariant}; }
// What reads the residual stream of a tower and writes the vision state.
constexpr LayerOp deepstack_extract() { return {OpType::kVisionDeepstackExtract, 0, Stream::kResidual}; }
constexpr LayerOp spatial_merge() { return {OpType::kVisionSpatialMerge, 0, Stream::kResidual}; }
// Puts the vision state's rows into the decoder's residual stream.
constexpr LayerOp vision_scatter() { return {OpType::kVisionScatter, 0, Stream::kResidual, Stream::kResidual}; }

}  // namespace llorch::engine::models
