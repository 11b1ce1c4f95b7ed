#pragma once
// Draws on a CUDA device: plan::DeviceSampler over the kernels of kernels/draw.h.
#include <memory>

#include "engine/compute/arena.h"
#include "engine/compute/cuda/stream.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute::cuda {

// What was drawn comes back by a copy to staging, so that the host may go on until it wants it.
class CudaDeviceSampler final : public plan::DeviceSampler {
 public:
  static std::uint64_t device_bytes(const plan::DrawLimits& limits);
  // All three outlive it. Errors: OUT_OF_DEVICE_MEMORY; CUDA_ERROR when the host has no memory to lock.
  static base::Result<std::unique_ptr<CudaDeviceSampler>> make(const plan::DrawLimits& limits, plan::Backend& backend,
                                                               Driver& driver, const CudaStream& stream);

  ~CudaDeviceSampler() override;

  void draw(float* rows, std::span<const plan::RowDraw> draws) noexcept override;
  base::Result<std::span<const plan::RowDrawn>> wait() override;

 private:
  // Device memory. What the host sends begins with the draws; edits and masks follow each other without gaps.
  struct Arrays {
    Arrays(WorkspaceArena arena, const plan::DrawLimits& limits);
    std::byte* sent = nullptr;
    kernels::DrawBest* bests = nullptr;
    std::uint64_t* keys = nullptr;
    std::uint32_t* counts = nullptr;
    std::uint32_t* indices = nullptr;
    plan::RowDrawn* drawn = nullptr;
    std::uint64_t bytes = 0;
  };
  CudaDeviceSampler(const plan::DrawLimits& limits, Driver& driver, const CudaStream& stream, plan::DeviceBuffer memory,
                    std::unique_ptr<Staging> staging);
  // Writes the draws to staging; how many bytes are to be sent.
  std::uint64_t stage(std::span<const plan::RowDraw> draws) noexcept;

  plan::DrawLimits limits_;
  Driver& driver_;
  const CudaStream& stream_;
  plan::DeviceBuffer memory_;
  Arrays arrays_;
  std::unique_ptr<Staging> staging_;  // what is sent, then what was drawn
  std::unique_ptr<Event> event_;
  std::uint32_t draws_count_ = 0;  // of the last draw()
  bool waited_ = true;
  std::uint32_t masks_begin_ = 0;  // bytes from the beginning of what is sent
};

}  // namespace llorch::engine::compute::cuda
