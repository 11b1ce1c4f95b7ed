#include "engine/compute/cpu/adapters/support.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/compute/cpu/adapters/tables.h"

namespace llorch::engine::compute::cpu::adapters {

using base::ErrorCode;
using base::fail;
using base::Result;
using contract::DType;

namespace {

// Work below which waking another thread costs more than it saves, in multiply-adds.
constexpr std::size_t kGrainProducts = 1u << 16;

std::string slot_text(const contract::PrepareArgs& args, const contract::SlotSpec& slot) {
  return fmt::format("{} slot {}", contract::opcode_name(args.insn.opcode), slot.name);
}

Result<> check_slot(const contract::PrepareArgs& args, const contract::SlotSpec& slot,
                    const contract::TensorViewDesc& view) {
  const std::uint64_t types =
      slot.use == contract::WeightUse::kVector
          ? dtype_bit(DType::kF32) | dtype_bit(DType::kF16) | dtype_bit(DType::kBF16)
          : kCpuTables.capabilities[static_cast<std::size_t>(args.insn.opcode)].dtype_mask_weights;
  if ((types & dtype_bit(view.dtype)) == 0)
    return fail(
        ErrorCode::kWeightDTypeUnsupported,
        fmt::format("{}: no CPU kernel takes {} here", slot_text(args, slot), contract::dtype_info(view.dtype).name));
  if (view.rank != slot.rank)
    return fail(ErrorCode::kWeightShapeMismatch,
                fmt::format("{} has rank {}, expected {}", slot_text(args, slot), view.rank, slot.rank));
  for (std::size_t d = 0; d < slot.rank; ++d) {
    const auto expected = contract::dim_value(slot.dims[d], args.params);
    if (expected && *expected != view.shape[d])
      return fail(ErrorCode::kWeightShapeMismatch, fmt::format("{} dimension {} is {}, the configuration says {}",
                                                               slot_text(args, slot), d, view.shape[d], *expected));
  }
  return {};
}

}  // namespace

void project(const CpuStream& stream, const ProjectionInput& input, std::span<const Projection> projections) {
  ASSERT(!projections.empty() && projections.size() <= 4, "{}", projections.size());
  const std::size_t width = projections[0].weight->matrix.cols;
  std::size_t units = 0;
  bool quantise = false;
  for (const Projection& p : projections) {
    units += p.weight->matrix.groups();
    quantise = quantise || contract::is_quantised(p.weight->matrix.dtype);
  }
  if (quantise) {
    const QuantiseArgs args{.x = input.x, .x_stride = input.x_stride, .out = input.quantised};
    stream.pool.run(input.rows, kGrainProducts / 8 / width + 1,
                    [&](Range rows, std::size_t) { stream.kernels.quantise(args, rows); });
  }
  const std::size_t grain = kGrainProducts / (kPackRows * width * input.rows) + 1;
  stream.pool.run(units, grain, [&](Range range, std::size_t) {
    std::size_t first = 0;  // unit where this projection begins
    for (const Projection& p : projections) {
      const PackedMatrix& w = p.weight->matrix;
      const std::size_t last = first + w.groups();
      const std::size_t begin = std::max(range.begin, first), end = std::min(range.end, last);
      if (begin < end)
        stream.kernels.matmul({.w = w,
                               .x = input.x,
                               .x_stride = input.x_stride,
                               .xq = input.quantised,
                               .y = p.y,
                               .y_stride = input.y_stride,
                               .rows = input.rows},
                              {begin - first, end - first});
      first = last;
    }
  });
}

Activation kernel_activation(contract::Activation act) {
  switch (act) {
    case contract::Activation::kSilu: return Activation::kSilu;
    case contract::Activation::kGeluTanh: return Activation::kGeluTanh;
    case contract::Activation::kGeluErf: return Activation::kGeluErf;
    case contract::Activation::kSwigluOai: return Activation::kSwigluOai;
  }
  ASSERT(false, "activation {}", static_cast<int>(act));
}

Result<> check_weights(const contract::PrepareArgs& args, std::initializer_list<std::size_t> allowed) {
  const auto slots = contract::weight_slots(args.insn.opcode);
  ASSERT(slots && slots->size() == args.weights.size() && slots->size() == args.views.size(), "validate() was skipped");
  for (std::size_t s = 0; s < slots->size(); ++s) {
    if (args.weights[s].ptr == nullptr) continue;
    if (std::ranges::find(allowed, s) == allowed.end())
      return require(args, false, fmt::format("a weight in slot {}", (*slots)[s].name));
    TRY(check_slot(args, (*slots)[s], args.views[s]));
  }
  return {};
}

Result<> require(const contract::PrepareArgs& args, bool supported, std::string_view what) {
  if (supported) return {};
  return fail(ErrorCode::kUnsupportedOpcode, fmt::format("{} with {} is not supported by the CPU device",
                                                         contract::opcode_name(args.insn.opcode), what));
}

}  // namespace llorch::engine::compute::cpu::adapters
