#pragma once
// Every kernel as the CUDA runtime launches it.
#include <array>
#include <cstdint>

#include "engine/compute/cuda/kernels/registry.h"

namespace llorch::engine::compute::cuda::runtime {

struct DeviceKernel {
  const void* function = nullptr;  // of a __global__ function that takes the kernel's Args
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;  // to be asked for; 0 = the function declares its own
};

// By KernelId.
const std::array<DeviceKernel, kernels::AllKernels::kCount>& device_kernels();

}  // namespace llorch::engine::compute::cuda::runtime
