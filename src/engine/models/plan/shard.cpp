#include "engine/models/plan/shard.h"

#include <fmt/format.h>

#include <initializer_list>
#include <string_view>

namespace llorch::engine::models {
namespace {

using namespace contract;
using base::Result;

struct Divided {
  std::string_view what;
  std::uint32_t& count;
};

Result<bool> divide(const Shard& shard, std::initializer_list<Divided> numbers) {
  for (const Divided& number : numbers) {
    if (number.count % shard.ranks != 0) {
      return base::fail(
          base::ErrorCode::kModelIncompatible,
          fmt::format("{} {} cannot be shared out evenly over {} devices", number.count, number.what, shard.ranks));
    }
    number.count /= shard.ranks;
  }
  return shard.ranks > 1;
}

template <class Slot>
constexpr bool is(std::uint8_t slot, Slot which) {
  return slot == static_cast<std::uint8_t>(which);
}

// A bias on the output that is summed.
bool is_added_once(Opcode opcode, std::uint8_t slot) {
  switch (opcode) {
    case Opcode::kMultiheadAttention: return is(slot, AttentionSlot::kOBias);
    case Opcode::kMlaAttention: return is(slot, MlaSlot::kOBias);
    case Opcode::kSwiglu: return is(slot, FfnSlot::kDownBias);
    case Opcode::kMoe: return is(slot, MoeSlot::kDownBias);
    default: return false;
  }
}

}  // namespace

// Where several devices share one key-value head, the query heads of each read that one alone: they are a part of its group.
Result<bool> share_out(AttentionParams& params, const Shard& shard) {
  TRY(divide(shard, {{"attention heads", params.heads}}));
  if (params.kv_heads < shard.ranks && shard.ranks % params.kv_heads == 0) {
    params.kv_heads = 1;
    return true;
  }
  return divide(shard, {{"key-value heads", params.kv_heads}});
}
Result<bool> share_out(MlaAttentionParams& params, const Shard& shard) {
  return divide(shard, {{"attention heads", params.heads}});
}
Result<bool> share_out(SwigluParams& params, const Shard& shard) {
  return divide(shard, {{"feed-forward features", params.ffn}});
}
Result<bool> share_out(MoeParams& params, const Shard& shard) {
  return divide(shard,
                {{"features of an expert", params.ffn_expert}, {"features of the shared expert", params.ffn_shared}});
}

Result<bool> share_out(LmHeadParams& params, const Shard& shard) {
  if (params.tied == 0 && params.rows % shard.ranks == 0) params.rows /= shard.ranks;
  return false;
}

TensorShare share_of(std::uint8_t slot, const ParamBlock& whole, const ParamBlock& own, const Shard& shard) {
  const SlotSpec& spec = (*weight_slots(whole.opcode))[slot];
  TensorShare share;
  for (std::uint8_t axis = 0; axis < spec.rank; ++axis) {
    const std::uint32_t count = *dim_value(spec.dims[axis], own);
    if (count == *dim_value(spec.dims[axis], whole)) continue;
    ASSERT(share.kind == TensorShare::Kind::kWhole, "slot {} of {} is cut twice", spec.name, opcode_name(whole.opcode));
    // As many parts as devices, or fewer, of which neighbours hold the same.
    const std::uint32_t parts = *dim_value(spec.dims[axis], whole) / count;
    share = {.kind = TensorShare::Kind::kSlice,
             .axis = axis,
             .begin = shard.rank * parts / shard.ranks * count,
             .count = count};
  }
  if (shard.rank != 0 && is_added_once(whole.opcode, slot)) share.kind = TensorShare::Kind::kZeros;
  return share;
}

}  // namespace llorch::engine::models
