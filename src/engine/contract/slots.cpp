#include "engine/contract/slots.h"

namespace llorch::engine::contract {
namespace {

using Value = std::optional<std::uint32_t>;

Value value(Dim dim, const RmsNormParams& p) {
  return dim == Dim::kModel ? Value(p.rows_per_group != 0 ? p.rows_per_group : p.width) : std::nullopt;
}

Value value(Dim dim, const AttentionParams& p) {
  const std::uint32_t q_rows = p.heads * p.d_qk * (p.query_gate != 0 ? 2 : 1);
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kQRows: return q_rows;
    case Dim::kKRows: return p.kv_heads * p.d_qk;
    case Dim::kVRows: return p.kv_heads * p.d_v;
    case Dim::kQkvRows: return q_rows + p.kv_heads * (p.d_qk + p.d_v);
    case Dim::kOCols: return p.heads * p.d_v;
    case Dim::kHeadQk: return p.d_qk;
    case Dim::kHeads: return p.heads;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const SwigluParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kFfn: return p.ffn;
    case Dim::kFfn2: return p.fused_gate_up != 0 ? 2 * p.ffn : p.ffn;
    default: return std::nullopt;
  }
}

Value value(Dim dim, const MoeParams& p) {
  switch (dim) {
    case Dim::kModel: return p.width;
    case Dim::kExperts: return p.experts;
    case Dim::kFfnExpert: return p.ffn_expert;
    case Dim::kFfnShared: return p.ffn_shared;
    case Dim::kOne: return 1;
    default: return std::nullopt;
  }
}

template <class P>
Value vocabulary_value(Dim dim, const P& p) {
  if (dim == Dim::kVocab) return p.rows;
  return dim == Dim::kModel ? Value(p.width) : std::nullopt;
}
Value value(Dim dim, const EmbeddingParams& p) { return vocabulary_value(dim, p); }
Value value(Dim dim, const LmHeadParams& p) { return vocabulary_value(dim, p); }

Value value(Dim, const ResidualAddParams&) { return std::nullopt; }
Value value(Dim, const VisionScatterParams&) { return std::nullopt; }
Value value(Dim, const VisionSpatialMergeParams&) { return std::nullopt; }
Value value(Dim, const VisionDeepstackExtractParams&) { return std::nullopt; }

// Mixers and patch embedding: only the model width is symbolic, the rest is checked by the adapter.
template <class P>
Value value(Dim dim, const P& p) {
  if (dim == Dim::kOne) return 1;
  return dim == Dim::kModel ? Value(p.width) : std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> dim_value(Dim dim, const ParamBlock& params) {
  Value result;
  visit_param_struct(params.opcode, [&]<ParamStruct P>() { result = value(dim, param_as<P>(params)); });
  return result;
}

}  // namespace llorch::engine::contract
