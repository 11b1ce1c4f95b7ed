#include "engine/plan/slots.h"

namespace llorch::engine::plan {
namespace {

using Value = std::optional<std::uint32_t>;

Value value(Dim dim, const RmsNormParams& p) {
  return dim == Dim::kModel ? Value(p.rows_per_group != 0 ? p.rows_per_group : p.width) : std::nullopt;
}

Value value(Dim dim, const AttentionParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kQRows: return p.heads * p.d_qk;
    case Dim::kKRows: return p.kv_heads * p.d_qk;
    case Dim::kVRows: return p.kv_heads * p.d_v;
    case Dim::kOCols: return p.heads * p.d_v;
    case Dim::kQNorm: return has_weights_of_all_heads(p.qk_norm) ? p.heads * p.d_qk : p.d_qk;
    case Dim::kKNorm: return has_weights_of_all_heads(p.qk_norm) ? p.kv_heads * p.d_qk : p.d_qk;
    case Dim::kGateRows: return p.gate == AttentionGate::kPerElement ? p.heads * p.d_v : p.heads;
    case Dim::kHeads: return p.heads;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const SwigluParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kFfn: return p.ffn;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const MoeParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kExperts: return p.experts;
    case Dim::kFfnExpert: return p.ffn_expert;
    case Dim::kFfnShared: return p.ffn_shared;
    case Dim::kLatent: return p.latent;
    case Dim::kExpertWidth: return p.expert_width();
    case Dim::kOne: return 1;
    case Dim::kVocab: return p.table_rows;
    case Dim::kExpertsUsed: return p.experts_used;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const MambaMixerParams& p) {
  const std::uint32_t conv_rows = p.d_inner + 2 * p.groups * p.d_state;
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kInner: return p.d_inner;
    case Dim::kConvRows: return conv_rows;
    case Dim::kMixerRows: return p.d_inner + conv_rows + p.heads;
    case Dim::kTaps: return p.d_conv;
    case Dim::kHeads: return p.heads;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const GatedDeltaParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kInner: return p.value_heads * p.d_v;
    case Dim::kConvRows: return 2 * p.key_heads * p.d_k + p.value_heads * p.d_v;
    case Dim::kTaps: return p.d_conv;
    case Dim::kHeads: return p.value_heads;
    case Dim::kValue: return p.d_v;
    case Dim::kRank: return p.rank;
    case Dim::kGateIn:
    case Dim::kDecayIn: return p.rank != 0 ? p.rank : p.width;
    case Dim::kDecayRows: return p.channel_decay != 0 ? p.value_heads * p.d_k : p.value_heads;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const LightningIndexParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kQLora: return p.q_lora;
    case Dim::kHeads: return p.heads;
    case Dim::kQHeadRows: return p.heads * p.d_index;
    case Dim::kValue: return p.d_index;
    default: return std::nullopt;
  }
}

template <class P>
Value hyper_value(Dim dim, const P& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kMixRows: return p.mix_rows;
    case Dim::kMixScales: return p.mix_rows == p.streams ? 1 : 3;
    case Dim::kStreams: return p.streams * p.width;
    default: return std::nullopt;
  }
}
Value value(Dim dim, const HyperCollapseParams& p) { return hyper_value(dim, p); }
Value value(Dim dim, const HyperAddParams& p) { return hyper_value(dim, p); }

Value value(Dim dim, const CompressorParams& p) {
  const std::uint32_t halves = p.overlaps != 0 ? 2 : 1;
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kRate: return p.rate;
    case Dim::kSeries: return halves * p.d_head;
    case Dim::kIndexSeries: return halves * p.d_index;
    case Dim::kValue: return p.d_head;
    case Dim::kIndexDim: return p.d_index;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const CompressedAttentionParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kHeads: return p.heads;
    case Dim::kQLora: return p.q_lora;
    case Dim::kQHeadRows: return p.heads * p.d_head;
    case Dim::kValue: return p.d_head;
    case Dim::kGroups: return p.groups;
    case Dim::kGroupRank: return p.o_rank;
    case Dim::kGroupRanks: return p.groups * p.o_rank;
    case Dim::kGroupCols: return p.groups != 0 ? Value(p.heads * p.d_head / p.groups) : std::nullopt;
    case Dim::kIndexRows: return p.index_heads * p.d_index;
    case Dim::kIndexHeads: return p.index_heads;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const ShortconvParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kMixerRows: return 3 * p.width;
    case Dim::kTaps: return p.l_cache;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const MlaAttentionParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kHeads: return p.heads;
    case Dim::kQLora: return p.q_lora;
    case Dim::kQHeadRows: return p.heads * (p.d_nope + p.d_rope);
    case Dim::kKvLora: return p.kv_lora;
    case Dim::kKvLoraRope: return p.kv_lora + p.d_rope;
    case Dim::kNope: return p.d_nope;
    case Dim::kValue: return p.d_v;
    case Dim::kOCols: return p.heads * p.d_v;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const VisionPatchEmbedParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kPatchRow: return 3 * p.temporal * p.patch * p.patch;
    case Dim::kGrid: return p.grid_side * p.grid_side;
    default: return std::nullopt;
  }
}

// A spatial merge normalises before it groups patches, a deepstack extraction behind that.
Value merger_value(Dim dim, std::uint32_t width_in, std::uint32_t width_out, std::uint32_t merge_size,
                   bool norm_grouped) {
  const std::uint32_t grouped = merge_size * merge_size * width_in;
  switch (dim) {
    case Dim::kModel: return width_out;
    case Dim::kMergeIn: return grouped;
    case Dim::kMergeNorm: return norm_grouped ? grouped : width_in;
    default: return std::nullopt;
  }
}
Value value(Dim dim, const VisionSpatialMergeParams& p) {
  return merger_value(dim, p.width_in, p.width_out, p.merge_size, false);
}
Value value(Dim dim, const VisionDeepstackExtractParams& p) {
  return merger_value(dim, p.width_in, p.width_out, p.merge_size, true);
}

template <class P>
Value vocabulary_value(Dim dim, const P& p) {
  if (dim == Dim::kVocab) return p.rows;
  return dim == Dim::kModel ? Value(p.width) : std::nullopt;
}
Value value(Dim dim, const EmbeddingParams& p) { return vocabulary_value(dim, p); }
Value value(Dim dim, const LmHeadParams& p) { return vocabulary_value(dim, p); }
Value value(Dim dim, const DenseParams& p) { return vocabulary_value(dim, p); }
Value value(Dim dim, const PositionEmbeddingParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kPositions: return p.positions;
    case Dim::kTypes: return p.types;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const LayerInputParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kInner: return p.inner;
    case Dim::kVocab: return p.rows;
    case Dim::kLayerInputs: return p.layers * p.inner;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const PredictorInputParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kJoined: return 2 * p.width;
    default: return std::nullopt;
  }
}

Value value(Dim, const ResidualAddParams&) { return std::nullopt; }
Value value(Dim, const PoolParams&) { return std::nullopt; }
Value value(Dim, const VisionScatterParams&) { return std::nullopt; }

}  // namespace

std::optional<std::uint32_t> dim_value(Dim dim, const ParamBlock& params) {
  Value result;
  visit_param_struct(params.opcode, [&]<ParamStruct P>() { result = value(dim, param_as<P>(params)); });
  return result;
}

}  // namespace llorch::engine::plan
