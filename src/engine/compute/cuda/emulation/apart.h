#pragma once
// Kernels with every thread of a block by itself, as a device runs them: a thread goes on until a barrier, and who goes first is left to
// chance. Where a phase needs what another thread wrote and there is no barrier between them, bits differ; threads that do not all
// come to the same barrier end the test. Slow: a stack and a switch for every thread and barrier.
#include <array>
#include <cstdint>

#include "engine/compute/cuda/driver.h"

namespace llorch::engine::compute::cuda::emulation {

using ApartFn = void (*)(const Grid& grid, const void* args, std::uint32_t seed);

// By KernelId. Not with sanitizers, which do not know of these stacks.
const std::array<ApartFn, kernels::AllKernels::kCount>& kernels_apart();

}  // namespace llorch::engine::compute::cuda::emulation
