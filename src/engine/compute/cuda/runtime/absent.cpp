// The door of a build without CUDA kernels.
#include "engine/compute/cuda/backend.h"

namespace llorch::engine::compute::cuda {

base::Result<std::unique_ptr<plan::Backend>> make_cuda_backend(const CudaBackendOptions& options) {
  return base::fail(base::Error{
      base::ErrorCode::kGpuUnavailable,
      missing_kernels({}) + ". Build with a CUDA toolkit and LLORCH_CUDA=on, or name the CPU reference device, cpu.",
      {}}.with("gpu_id", static_cast<std::int64_t>(options.device)));
}

base::Result<CudaGroup> make_cuda_group(const CudaGroupOptions& options) {
  return base::fail(make_cuda_backend(options.gpus.at(0)).error());
}

}  // namespace llorch::engine::compute::cuda
