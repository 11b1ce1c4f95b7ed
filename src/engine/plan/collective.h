#pragma once
// Where the devices that share a model meet (docs/internals/parallel.md): each has computed its addend of the same rows, each gets the sum.
#include <cstdint>

#include "base/result.h"
#include "engine/plan/adapter.h"

namespace llorch::engine::plan {

// A rank's part of rows that all ranks have made together, and where it wants them whole; f32 device memory of the rank.
struct RowParts {
  const float* part = nullptr;  // [rows, width]
  float* whole = nullptr;       // [rows, ranks x width]: the parts of a row behind each other, by rank
  std::uint64_t rows = 0;
  std::uint64_t width = 0;
};

// Ranks are the places of the devices in their list. Thread rule: sum() and join() are called by one thread per rank, all others
// by one thread while nobody is in these, but abort(), which anyone may call at any time.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual std::uint32_t ranks() const = 0;
  // Once before the first step: makes room for sums of up to `values_max`, Backend::sum_bytes() on each device. Errors: OUT_OF_DEVICE_MEMORY, CUDA_ERROR.
  virtual base::Result<> reserve(std::uint64_t values_max) = 0;
  // Gives back what reserve() took.
  virtual void release() noexcept = 0;

  // Before a step: forgets an abort. Errors: CUDA_ERROR (the devices do not find together again).
  virtual base::Result<> begin() = 0;
  // Replaces values[i] of every rank by ((v_0[i] + v_1[i]) + v_2[i]) + ..., in f32, v_r being rank r's: the same bits on
  // every rank, whoever comes first. Ordered with the rank's stream; `values` is f32 device memory of the rank. All ranks
  // make the same calls in the same order. Fails, on every rank that is or comes, once a step was aborted; never waits on
  // then. REQUIRES: count <= values_max.
  virtual Status sum(std::uint32_t rank, float* values, std::uint64_t count) noexcept = 0;
  // Gives every rank the rows whole. Order, waits and failures as of sum(). REQUIRES: reserve() was called; at least one value.
  virtual Status join(std::uint32_t rank, const RowParts& rows) noexcept = 0;
  // Nobody waits any longer for a rank that will not come. Twice is fine.
  virtual void abort() noexcept = 0;
};

}  // namespace llorch::engine::plan
