#pragma once
// Draws on the CPU device: rows side by side on the pool, the passes over a row in the instruction set of the kernels. What a draw
// is: docs/internals/sampling.md.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/compute/cpu/device.h"
#include "engine/plan/draw.h"

namespace llorch::engine::compute::cpu::sampler {

class CpuSampler final : public plan::DeviceSampler {
 public:
  // Of the scratch memory: no more rows are drawn from at a time than there are threads.
  static std::uint64_t bytes(const plan::DrawLimits& limits, std::size_t threads_count);
  // The backend, whose stream it is, outlives it. Errors: OUT_OF_DEVICE_MEMORY.
  static base::Result<std::unique_ptr<CpuSampler>> make(plan::Backend& backend, const CpuStream& stream,
                                                        const plan::DrawLimits& limits);

  void draw(float* rows, std::span<const plan::RowDraw> draws) noexcept override;
  base::Result<std::span<const plan::RowDrawn>> wait() override { return std::span<const plan::RowDrawn>(drawn_); }
  bool draws_at_once() const override { return true; }

 private:
  // Of one row at a time.
  struct Scratch {
    std::uint64_t* keys;   // [width]
    std::uint64_t* other;  // [width], of a sort
    float* weights;        // [width], of the sorted keys, as far as they were wanted
    float* sums;           // [width], running
  };
  class Walk;

  CpuSampler(const CpuStream& stream, const plan::DrawLimits& limits) : stream_(stream), limits_(limits) {}
  Scratch scratch_of(std::size_t lane) const;
  plan::RowDrawn draw_row(float* row, const plan::RowDraw& draw, const Scratch& scratch) const;

  const CpuStream& stream_;
  plan::DrawLimits limits_;
  plan::DeviceBuffer memory_;
  std::size_t lanes_ = 0;  // rows at a time
  std::vector<plan::RowDrawn> drawn_;
};

}  // namespace llorch::engine::compute::cpu::sampler
