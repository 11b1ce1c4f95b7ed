#pragma once
// What every device asks of an instruction when it is loaded: what its parameters and weights must be to make sense, and
// what the device's kernels can take of that.
#include <cstdint>
#include <limits>
#include <string_view>

#include "engine/plan/adapter.h"

namespace llorch::engine::compute {

// The kernels of a device for the opcode at hand.
struct DeviceKernels {
  static constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

  std::string_view device;          // "CPU", "CUDA"
  std::uint64_t matrix_types = 0;   // bit 1 << DType
  std::uint32_t positions_max = 0;  // tokens of a context: how far rotation angles stay exact enough
  std::uint32_t conv_taps_max = 0;
  std::uint32_t rows_max = kNoLimit;                                 // of a step, for opcodes with weights
  std::uint32_t key_dims_max = kNoLimit, value_dims_max = kNoLimit;  // of an attention head, or of compressed rows
  std::uint32_t stack_max = kNoLimit;  // matrices that one call multiplies by, a head or group each
  std::uint32_t experts_max = kNoLimit, experts_used_max = kNoLimit, expert_groups_max = kNoLimit;
};

// Parameters; then every weight against its slot: type, rank and the dimensions the parameters fix; then which weights are
// there. A weight in a slot that the opcode's adapters do not read is refused, never ignored.
// Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH, UNSUPPORTED_OPCODE ("multihead_attention with ...").
base::Result<> check_instruction(const plan::PrepareArgs& args, const DeviceKernels& kernels);

// Whether the gate is one and the numbers of experts, groups and choices fit each other and the kernels.
bool routable(const plan::MoeParams& p, const DeviceKernels& kernels = {});

}  // namespace llorch::engine::compute
