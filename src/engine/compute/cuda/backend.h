#pragma once
// The CUDA device: the door for whoever wires an engine to it.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/plan/backend.h"
#include "engine/plan/collective.h"
#include "engine/plan/step_meter.h"

namespace llorch::engine::compute::cuda {

struct CudaBackendOptions {
  std::uint32_t device = 0;               // among those CUDA_VISIBLE_DEVICES leaves; no other one is touched
  std::uint64_t memory_budget_bytes = 0;  // 0 = what is free now, less a reserve for the driver's own needs
};

// GPUs that share a model, in rank order, and how they all-reduce; one alone needs no collective, which ends before the backends.
struct CudaGroup {
  std::vector<std::unique_ptr<plan::Backend>> backends;
  std::unique_ptr<plan::Collective> collective;
  std::vector<std::unique_ptr<plan::StepMeter>> meters;  // by rank, where asked for; they end before the backends
};
struct CudaGroupOptions {
  std::vector<CudaBackendOptions> gpus;  // by rank: at least one, none twice
  bool count_steps = false;
};
// Several find each other through NCCL, which is opened here. All of them or none. Errors: those of make_cuda_backend;
// GPU_UNAVAILABLE (no NCCL), CUDA_ERROR (they do not find each other).
base::Result<CudaGroup> make_cuda_group(const CudaGroupOptions& options);

// "0,1" or "cuda:0,1", the list that --gpu-device and --device take. Errors: GPU_UNAVAILABLE, naming what it was given.
base::Result<std::vector<std::uint32_t>> parse_devices(std::string_view text);
// "3" or "cuda:3". Errors: GPU_UNAVAILABLE, naming what it was given.
base::Result<std::uint32_t> parse_device(std::string_view text);

// Device class is the GPU's name and sm, numerics "cuda-4". Never falls back to another device.
// Errors: GPU_UNAVAILABLE (this build has no CUDA kernels, no driver, no such device, an architecture without kernels),
// CUDA_ERROR.
base::Result<std::unique_ptr<plan::Backend>> make_cuda_backend(const CudaBackendOptions& options);

// The device without a machine: it tells what a model takes of a GPU (weights as they will lie, workspaces) and has no
// memory to give. Touches no driver.
std::unique_ptr<plan::Backend> make_cuda_planner();

// "sm_80, sm_90a": what this build was compiled for. Empty: it has no kernels.
std::string_view built_architectures();

// Why this build cannot run on a GPU of this compute capability ("9.0"); empty when it can. Touches no driver.
std::string missing_kernels(std::string_view compute_capability);

}  // namespace llorch::engine::compute::cuda
