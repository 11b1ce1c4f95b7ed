#pragma once
// Drawing an index from a row of numbers on the device that computed them, so that the row need not travel. What a draw is,
// step by step and bit for bit: docs/internals/sampling.md; the host's definition of it is engine/sampling.
#include <cstdint>
#include <span>

#include "base/result.h"

namespace llorch::engine::plan {

// What happens to one element x of a row before anything is drawn. Every result is clamped to the finite range.
enum class EditKind : std::uint32_t {
  kAdd,    // x + a
  kScale,  // x > 0 ? x / a : x * a
  kLower,  // (x - a) - b
};
struct RowEdit {
  std::uint32_t index = 0;
  EditKind kind = EditKind::kAdd;
  float a = 0;
  float b = 0;
};

// One draw. The spans are host memory and need to live until DeviceSampler::draw() returns.
struct RowDraw {
  std::uint32_t row = 0;                     // of the rows given to draw(); no two draws have the same
  std::span<const RowEdit> edits{};          // by index, ascending; the edits of one index in the order they apply
  std::span<const std::uint32_t> allowed{};  // bit i % 32 of word i / 32, ceil(width / 32) words; empty: all
  float temperature = 0;                     // 0: the largest, of equal ones the lowest index
  std::uint32_t top_k = 0;                   // 0 is off, as are top_p 1 and min_p 0
  float top_p = 1;
  float min_p = 0;
  std::uint32_t min_keep = 1;
  float uniform = 0;  // in [0, 1): decides among what is left
};

enum class DrawFault : std::uint32_t { kNone = 0, kNotFinite = 1, kNothingAllowed = 2 };
struct RowDrawn {
  std::uint32_t index = 0;  // when there is no fault
  DrawFault fault = DrawFault::kNone;
};

struct DrawLimits {
  std::uint32_t rows_max = 0;   // draws at once
  std::uint32_t width = 0;      // of a row
  std::uint32_t edits_max = 0;  // of one draw
};

// Thread rule: the backend's. A draw's result does not depend on the draws beside it.
class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;
  // Enqueues the draws behind what computes `rows` ([., width], device memory; contents of the rows named are undefined
  // afterwards) and the copy of what was drawn. Waits for nothing. REQUIRES: within the limits; wait() since the last call.
  virtual void draw(float* rows, std::span<const RowDraw> draws) noexcept = 0;
  // Waits for the last draw() and nothing behind it: one for each of its draws, valid until the next.
  // Errors: CUDA_ERROR.
  virtual base::Result<std::span<const RowDrawn>> wait() = 0;
  // Whether draw() returns when all is drawn: host work between the two gains nothing and makes what was drawn wait.
  virtual bool draws_at_once() const { return false; }
};

}  // namespace llorch::engine::plan
