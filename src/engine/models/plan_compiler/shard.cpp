#include "engine/models/plan_compiler/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

namespace llorch::engine::models {
namespace {

using namespace plan;
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

// Of a width that need not divide.
Result<> cut_width(const Shard& shard, std::uint32_t block, const Divided& width) {
  const auto part = part_of(width.count, block, shard);
  if (!part) {
    const std::string blocks = block == 1 ? "" : fmt::format(", in blocks of {},", block);
    return base::fail(base::ErrorCode::kModelIncompatible,
                      fmt::format("{} {}{} cannot be shared out{} over {} devices", width.count, width.what, blocks,
                                  block == 1 ? " evenly" : "", shard.ranks));
  }
  width.count = part->count;
  return {};
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

std::optional<Part> part_of(std::uint32_t width, std::uint32_t block, const Shard& shard) {
  const std::uint32_t blocks = (width + block - 1) / block;
  const bool divides = width % shard.ranks == 0;
  if (divides && (width / shard.ranks % block == 0 || blocks < shard.ranks)) {
    return Part{.begin = shard.rank * (width / shard.ranks), .count = width / shard.ranks};
  }
  if (block == 1 || blocks < shard.ranks) return std::nullopt;
  const auto begin_of = [&](std::uint32_t rank) {
    const std::uint32_t first = rank * (blocks / shard.ranks) + std::min(rank, blocks % shard.ranks);
    return std::min(width, first * block);
  };
  return Part{.begin = begin_of(shard.rank), .count = begin_of(shard.rank + 1) - begin_of(shard.rank)};
}

// Where several devices share one key-value head, the query heads of each read that one alone: they are a part of its group.
Result<bool> share_out(AttentionParams& params, const Shard& shard, std::uint32_t) {
  if (shard.ranks > 1 && params.qk_norm == QkNorm::kPerRow) {
    return base::fail(
        base::ErrorCode::kModelIncompatible,
        fmt::format("a norm over all query heads needs all of them on one device, not on {}", shard.ranks));
  }
  if (shard.ranks > 1 && params.gate == AttentionGate::kPerElement) {
    return base::fail(
        base::ErrorCode::kModelIncompatible,
        fmt::format("queries that take turns with gates are not shared out over {} devices", shard.ranks));
  }
  TRY(divide(shard, {{"attention heads", params.heads}}));
  if (params.kv_heads < shard.ranks && shard.ranks % params.kv_heads == 0) {
    params.kv_heads = 1;
    return true;
  }
  return divide(shard, {{"key-value heads", params.kv_heads}});
}
Result<bool> share_out(MlaAttentionParams& params, const Shard& shard, std::uint32_t) {
  return divide(shard, {{"attention heads", params.heads}});
}
Result<bool> share_out(SwigluParams& params, const Shard& shard, std::uint32_t block) {
  TRY(cut_width(shard, block, {"feed-forward features", params.ffn}));
  return shard.ranks > 1;
}
Result<bool> share_out(MoeParams& params, const Shard& shard, std::uint32_t block) {
  TRY(cut_width(shard, block, {"features of an expert", params.ffn_expert}));
  if (params.ffn_shared != 0) TRY(cut_width(shard, block, {"features of the shared expert", params.ffn_shared}));
  return shard.ranks > 1;
}

Result<bool> share_out(LmHeadParams& params, const Shard& shard, std::uint32_t) {
  if (params.tied == 0 && params.rows % shard.ranks == 0) params.rows /= shard.ranks;
  return false;
}

bool is_summed_over(Opcode opcode, std::uint8_t slot) {
  switch (opcode) {
    case Opcode::kSwiglu: return is(slot, FfnSlot::kDown);
    case Opcode::kMoe: return is(slot, MoeSlot::kDown) || is(slot, MoeSlot::kSharedDown);
    default: return false;
  }
}

TensorShare share_of(std::uint8_t slot, const ParamBlock& whole, const ParamBlock& own, const Shard& shard,
                     std::uint32_t block) {
  const bool has_widths = whole.opcode == Opcode::kSwiglu || whole.opcode == Opcode::kMoe;
  const SlotSpec& spec = (*weight_slots(whole.opcode))[slot];
  TensorShare share;
  for (std::uint8_t axis = 0; axis < spec.rank; ++axis) {
    const std::uint32_t count = *dim_value(spec.dims[axis], own), all = *dim_value(spec.dims[axis], whole);
    if (count == all) continue;
    ASSERT(share.kind == TensorShare::Kind::kWhole, "slot {} of {} is cut twice", spec.name, opcode_name(whole.opcode));
    // Equal parts: as many as devices, or fewer, of which neighbours hold the same.
    const std::uint32_t begin =
        has_widths ? part_of(all, block, shard)->begin : shard.rank * (all / count) / shard.ranks * count;
    share = {.kind = TensorShare::Kind::kSlice, .axis = axis, .begin = begin, .count = count};
  }
  if (shard.rank != 0 && is_added_once(whole.opcode, slot)) share.kind = TensorShare::Kind::kZeros;
  return share;
}

}  // namespace llorch::engine::models
