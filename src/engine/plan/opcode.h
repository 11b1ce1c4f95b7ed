#pragma once
// The macro-operations a plan is made of. Values are part of the plan format: never renumbered, never reused.
// 10-15 and 20-31 are kept for structural and vision growth, 43-63 for macro-operations,
// 64-127 for primitives, 128-255 for backend experiments.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llorch::engine::plan {

enum class Opcode : std::uint8_t {
  kRmsNorm = 0,             // the norm family: RMS or LayerNorm, with offset or bias
  kMultiheadAttention = 1,  // projections, rotary embedding, append to the cache, attention, output projection
  kSwiglu = 2,              // the dense feed-forward family: any activation, gated or not
  kMoe = 3,
  kMambaMixer = 4,
  kShortconv = 5,
  kMlaAttention = 6,
  kEmbedding = 7,
  kResidualAdd = 8,
  kPositionEmbedding = 9,  // adds a learned row for the position, and one for the token's type
  kVisionPatchEmbed = 16,
  kVisionSpatialMerge = 17,
  kVisionDeepstackExtract = 18,
  kVisionScatter = 19,
  kGatedDelta = 32,  // linear attention: convolution, gated delta rule, gated norm, with the projections around them
  kLmHead = 33,      // output projection, logit multiplier, final soft cap
  kPool = 34,        // the rows of a sequence become one: the last, the first, or their mean
  kDense = 37,       // a linear layer over pooled rows
  kLightningIndex = 36,  // which earlier positions a row attends to: the highest scores of a small attention of its own
  kLayerInput = 35,      // what a layer adds of a table of its own: a row by id and one by the embedding, behind a gate
  kHyperCollapse = 38,   // hyper-connections: the row that a branch reads, a weighed sum of the residual streams
  kHyperAdd = 39,        // hyper-connections: what a branch gave is put into streams that are mixed
  kCompressor = 40,      // of every so many rows of a sequence one entry: their weighed mean, channel by channel
  kCompressedAttention = 41,  // attention to the last positions and to the entries of those before
  kPredictorInput = 42,  // what a layer that predicts a further token reads: an embedding joined with a hidden state
};

// Every table over opcodes has this many rows; an opcode is its own index.
inline constexpr std::size_t kOpcodeTableSize = 256;

struct OpcodeInfo {
  Opcode opcode;
  std::string_view name;  // as plan dumps and errors print it
  std::uint8_t inputs;    // registers read, in order; one more by some opcodes when their params say so
  std::uint8_t outputs;   // registers written, in order; with none, what the instruction does is done to its state
  bool needs_state;       // an instruction of this opcode names a state descriptor (attention: only when causal)
};

inline constexpr auto kOpcodes = std::to_array<OpcodeInfo>({
    {Opcode::kRmsNorm, "rmsnorm", 1, 1, false},
    {Opcode::kMultiheadAttention, "multihead_attention", 1, 1, true},
    {Opcode::kSwiglu, "swiglu", 1, 1, false},
    {Opcode::kMoe, "moe", 1, 1, false},
    {Opcode::kMambaMixer, "mamba_mixer", 1, 1, true},
    {Opcode::kShortconv, "shortconv", 1, 1, true},
    {Opcode::kMlaAttention, "mla_attention", 1, 1, true},
    {Opcode::kEmbedding, "embedding", 0, 1, false},
    {Opcode::kResidualAdd, "residual_add", 2, 1, false},
    {Opcode::kPositionEmbedding, "position_embedding", 1, 1, false},
    {Opcode::kVisionPatchEmbed, "vision_patch_embed", 0, 1, false},
    {Opcode::kVisionSpatialMerge, "vision_spatial_merge", 1, 0, true},
    {Opcode::kVisionDeepstackExtract, "vision_deepstack_extract", 1, 0, true},
    {Opcode::kVisionScatter, "vision_scatter", 1, 1, true},
    {Opcode::kGatedDelta, "gated_delta", 1, 1, true},
    {Opcode::kLmHead, "lm_head", 1, 1, false},
    {Opcode::kPool, "pool", 1, 1, false},
    {Opcode::kDense, "dense", 1, 1, false},
    {Opcode::kLayerInput, "layer_input", 2, 1, false},
    {Opcode::kLightningIndex, "lightning_index", 1, 1, true},
    {Opcode::kHyperCollapse, "hyper_collapse", 1, 1, false},
    {Opcode::kHyperAdd, "hyper_add", 2, 1, false},
    {Opcode::kCompressor, "compressor", 1, 1, true},
    {Opcode::kCompressedAttention, "compressed_attention", 1, 1, true},
    {Opcode::kPredictorInput, "predictor_input", 1, 1, false},
});

// True when the value is an opcode.
constexpr bool is_opcode(Opcode opcode) {
  for (const OpcodeInfo& row : kOpcodes) {
    if (row.opcode == opcode) return true;
  }
  return false;
}

// The row of `opcode`, or null when the value is no opcode.
constexpr const OpcodeInfo* opcode_info(Opcode opcode) {
  for (const OpcodeInfo& row : kOpcodes) {
    if (row.opcode == opcode) return &row;
  }
  return nullptr;
}

constexpr std::string_view opcode_name(Opcode opcode) {
  const OpcodeInfo* row = opcode_info(opcode);
  return row != nullptr ? row->name : std::string_view("?");
}

}  // namespace llorch::engine::plan
