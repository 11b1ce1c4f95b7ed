#pragma once
// What the model made of each position, on its way from the model's last norm to the layer that predicts a further token: that
// layer's row at a position reads the token there and the state of the position before.
//
// Memory is the device's, all taken by make(). A state that is not known is zeros: it decides a proposal, never an answer.
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/plan/backend.h"
#include "engine/plan/context.h"

namespace llorch::engine::inference::speculation {

class HiddenStates {
 public:
  struct Place {
    std::uint32_t slot = 0;
    std::uint32_t position = 0;
  };

  static std::uint64_t device_bytes(const plan::StepLimits& limits, std::uint32_t width);
  static base::Result<HiddenStates> make(const plan::StepLimits& limits, std::uint32_t width, plan::Backend& backend);

  // A sequence begins in the slot, or goes on in another one.
  void reset(std::uint32_t slot);
  void fork(std::uint32_t from, std::uint32_t to);
  // The step of `ctx` has left `states`, [T, D]. Gives what the predictor reads for the same rows, [T, D].
  const float* follow(const plan::ExecutionContext& ctx, const std::byte* states);
  // The slot goes back to hold `length` positions. What came before its last step is known no more.
  void rewind(std::uint32_t slot, std::uint32_t length);

  // Whether the state before this position is known, of the model or of the predictor itself.
  bool knows(const Place& place) const { return source_of(place) != nullptr; }
  // What the predictor reads for a row at each of the places, [places, D]. REQUIRES: knows(each).
  const float* stage(std::span<const Place> places);
  // The predictor has left `states` at the places: the next position of each is known by them, until the next follow().
  void keep(std::span<const Place> places, const std::byte* states);

 private:
  // Rows of a slot in the last step it was in.
  struct Rows {
    std::uint64_t step = 0;
    std::uint32_t row = 0;    // of `step_`
    std::uint32_t first = 0;  // position
    std::uint32_t count = 0;
    std::uint32_t last = 0;  // the position whose state before is in `last_`
    std::uint32_t own = 0;   // the same of `own_`; 0: nothing is
  };
  std::byte* at(const plan::DeviceBuffer& buffer, std::uint32_t row) const { return buffer.data() + row * row_bytes_; }
  const std::byte* source_of(const Place& place) const;

  plan::Backend* backend_ = nullptr;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t step_number_ = 1;
  plan::DeviceBuffer step_;    // [rows_max, D] each row's state before, of the last step
  plan::DeviceBuffer last_;    // [slots, D] of the last position that a slot holds
  plan::DeviceBuffer own_;     // [slots, D] of the predictor's last row in a slot
  plan::DeviceBuffer staged_;  // [slots, D]
  std::vector<Rows> rows_;     // [slots]
};

}  // namespace llorch::engine::inference::speculation
