#pragma once
// Weights on their way from files to the device: several threads read pieces of tensors into locked host memory, each piece
// is copied to the device as it was stored, and a kernel packs it there (kernels/packing).
#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/compute/cuda/driver.h"
#include "engine/compute/cuda/stream.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute::cuda::loading {

// Beside the weights a load takes slots_max * piece_bytes twice, as locked host memory and on the device (staging), or, where
// sixteen rows of a tensor are larger than a piece, slots_max times those. With fewer bytes free, on the device or of locked memory, it takes fewer
// slots, then smaller pieces, down to one slot of 4 KiB or of sixteen rows.
struct LoadLimits {
  std::uint32_t readers = 8;  // threads; as many of them as the machine has processors
  std::uint32_t slots_max = 16;
  std::uint64_t piece_bytes = 4u << 20;
};

struct LoadInput {
  plan::Backend& backend;  // gives the staging, accounted as such
  Driver& driver;
  const CudaStream& stream;
  std::span<const plan::StoredTensor> tensors;  // checked
  std::span<std::byte* const> memory;           // of each tensor's weight, zeroed
};

// Returns when every weight is packed, or something failed and nothing is under way any more. `progress` is called on the
// calling thread, which alone uses the driver. Errors: OUT_OF_DEVICE_MEMORY for staging, MODEL_LOAD_FAILED when the host
// has no memory to lock, CUDA_ERROR, those of TensorSource with the tensor's name.
base::Result<> load_weights(const LoadInput& input, const LoadLimits& limits, const plan::UploadProgress& progress);

// What load_weights() takes of the device for staging, to the byte. Pure.
plan::StagingBytes staging_bytes(std::span<const plan::StoredTensor> tensors, const LoadLimits& limits);

}  // namespace llorch::engine::compute::cuda::loading
