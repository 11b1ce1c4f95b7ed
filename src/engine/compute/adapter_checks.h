#pragma once
// Load-time checks that adapters of every device share.
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "engine/contract/adapter.h"

namespace llorch::engine::compute {

// The device an adapter belongs to, and the matrix types its kernels take for the opcode at hand.
struct DeviceKernels {
  std::string_view device;  // "CPU", "CUDA"
  std::uint64_t matrix_types = 0;
};

// Every weight against its slot: type, rank and the dimensions the params fix. `allowed` lists the slots this adapter reads;
// a weight in another slot is refused, never ignored.
// Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH, UNSUPPORTED_OPCODE.
base::Result<> check_weights(const contract::PrepareArgs& args, const DeviceKernels& kernels,
                             std::initializer_list<std::size_t> allowed);

// UNSUPPORTED_OPCODE: "multihead_attention with attention sinks ..." unless `supported`.
base::Result<> require(const contract::PrepareArgs& args, const DeviceKernels& kernels, bool supported,
                       std::string_view what);

}  // namespace llorch::engine::compute
