#pragma once
// A machine without a GPU that runs every kernel: device memory is host memory, a launch runs the kernel's body block by
// block and thread by thread, at once. Test code; no product links it.
#include <memory>

#include "base/result.h"
#include "engine/compute/cuda/device.h"

namespace llorch::engine::compute::cuda::emulation {

struct EmulationOptions {
  std::uint64_t memory_bytes = 1u << 30;  // what malloc() can give
  // Threads of a block run from the last to the first, and blocks too: a body that leans on an order the device does not
  // promise shows by other bits.
  bool backwards = false;
  // Kernels overlap as far as a device lets them: until a block waits for the stream, device memory is what it was before the
  // kernel before. Copies all memory twice per block of a kernel that starts early.
  bool overlapping = false;
  // Not 0: threads go through a phase in an order by chance, and blocks through a launch.
  std::uint32_t seed = 0;
  // So many host threads run the blocks of a launch, several at once: what they do to each other is a race that shows by other bits
  // or to the thread sanitizer. REQUIRES: 1 with `overlapping`.
  std::uint32_t host_threads = 1;
  // Every thread of a block by itself (apart.h), in the order of the seed: a barrier that is missing shows. Not with the two above.
  bool apart = false;
};
// Where LLORCH_EMULATION is set ("seed:host threads"), it is the order of options that say nothing of one.
std::unique_ptr<Driver> make_driver(const EmulationOptions& options);

// The CUDA backend on an emulated device, numerics "cuda-4".
std::unique_ptr<CudaBackend> make_backend(const EmulationOptions& options);

// The device that programs for real GPUs run on: GPU 0, or with LLORCH_GPU=emulated this one, so that whatever such a program does can
// be tried without a GPU. Errors: those of make_cuda_backend().
base::Result<std::unique_ptr<plan::Backend>> make_gpu_backend(std::uint64_t memory_budget_bytes);
bool is_emulated();  // LLORCH_GPU=emulated

}  // namespace llorch::engine::compute::cuda::emulation
