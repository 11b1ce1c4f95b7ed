#pragma once
// The CUDA device: the door for whoever wires an engine to it.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/contract/backend.h"

namespace llorch::engine::compute::cuda {

struct CudaBackendOptions {
  std::uint32_t device = 0;               // among those CUDA_VISIBLE_DEVICES leaves; no other one is touched
  std::uint64_t memory_budget_bytes = 0;  // 0 = what is free now, less a reserve for the driver's own needs
};

// "3" or "cuda:3". Errors: GPU_UNAVAILABLE, naming what it was given.
base::Result<std::uint32_t> parse_device(std::string_view text);

// Device class is the GPU's name and sm, numerics "cuda-2". Never falls back to another device.
// Errors: GPU_UNAVAILABLE (this build has no CUDA kernels, no driver, no such device, an architecture without kernels),
// CUDA_ERROR.
base::Result<std::unique_ptr<contract::Backend>> make_cuda_backend(const CudaBackendOptions& options);

// The device without a machine: it tells what a model takes of a GPU (weights as they will lie, workspaces) and has no
// memory to give. Touches no driver.
std::unique_ptr<contract::Backend> make_cuda_planner();

// Why this build cannot run on a GPU of this compute capability ("9.0"); empty when it can. Touches no driver.
std::string missing_kernels(std::string_view compute_capability);

}  // namespace llorch::engine::compute::cuda
