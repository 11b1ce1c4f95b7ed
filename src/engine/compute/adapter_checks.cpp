#include "engine/compute/adapter_checks.h"

#include <fmt/core.h>

#include <algorithm>

namespace llorch::engine::compute {

using base::ErrorCode;
using base::fail;
using base::Result;
using contract::DType;

namespace {

std::string slot_text(const contract::PrepareArgs& args, const contract::SlotSpec& slot) {
  return fmt::format("{} slot {}", contract::opcode_name(args.insn.opcode), slot.name);
}

Result<> check_slot(const contract::PrepareArgs& args, const contract::SlotSpec& slot,
                    const contract::TensorViewDesc& view, const DeviceKernels& kernels) {
  const std::uint64_t types =
      slot.use == contract::WeightUse::kVector
          ? contract::dtype_bit(DType::kF32) | contract::dtype_bit(DType::kF16) | contract::dtype_bit(DType::kBF16)
          : kernels.matrix_types;
  if ((types & contract::dtype_bit(view.dtype)) == 0)
    return fail(ErrorCode::kWeightDTypeUnsupported, fmt::format("{}: no {} kernel takes {} here", slot_text(args, slot),
                                                                kernels.device, contract::dtype_info(view.dtype).name));
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

Result<> check_weights(const contract::PrepareArgs& args, const DeviceKernels& kernels,
                       std::initializer_list<std::size_t> allowed) {
  const auto slots = contract::weight_slots(args.insn.opcode);
  ASSERT(slots && slots->size() == args.weights.size() && slots->size() == args.views.size(), "validate() was skipped");
  for (std::size_t s = 0; s < slots->size(); ++s) {
    if (args.weights[s].ptr == nullptr) continue;
    if (std::ranges::find(allowed, s) == allowed.end())
      return require(args, kernels, false, fmt::format("a weight in slot {}", (*slots)[s].name));
    TRY(check_slot(args, (*slots)[s], args.views[s], kernels));
  }
  return {};
}

Result<> require(const contract::PrepareArgs& args, const DeviceKernels& kernels, bool supported,
                 std::string_view what) {
  if (supported) return {};
  return fail(ErrorCode::kUnsupportedOpcode,
              fmt::format("{} with {} is not supported by the {} device", contract::opcode_name(args.insn.opcode), what,
                          kernels.device));
}

}  // namespace llorch::engine::compute
