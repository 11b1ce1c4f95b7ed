#pragma once
// The rows a step makes, on their way to the caller.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/inference/batch_builder.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference {

// What the caller does while the device runs a step: its instructions are on their way when draw() is asked, and the draws too
// when meanwhile() is.
struct StepHooks {
  // How the device is to draw from the last row of the i-th request, which wants it; null: the logits are wanted. It lives
  // until step() returns. Asked when Engine::draws().
  std::function<const plan::RowDraw*(std::size_t request)> draw{};
  std::function<void()> meanwhile{};
};

// Logits of a step (of a model of embeddings: what its rows are pooled to), in row order: requests in order, each request's
// wanted rows in order. Valid until the next step.
struct StepOutput {
  std::span<const float> logits;            // [rows, width]; of rows that were drawn from, nothing
  std::span<const plan::RowDrawn> drawn{};  // for each row that was, in order
  std::uint32_t width = 0;
  std::size_t rows() const { return logits.size() / width; }
  std::span<const float> row(std::size_t i) const { return logits.subspan(i * width, width); }
};

// Where a step's rows lie once its instructions are on their way.
struct RowsOnDevice {
  plan::Backend& backend;
  plan::DeviceSampler* device_sampler = nullptr;  // null: it has none, or nobody wants one
  std::byte* rows = nullptr;                      // [count, width]
  std::size_t count = 0;
};

// Draws from rows where they lie, or reads them. All memory is taken by the constructor.
class OutputRows {
 public:
  OutputRows() = default;
  OutputRows(std::uint32_t rows_max, std::uint32_t width);

  // What the step about to run is asked for; both live until gather() has returned.
  void begin(std::span<const SlotRows> requests, const StepHooks& hooks);
  // While the device runs: asks the hooks, waits for what was drawn and reads the other rows. Errors: the backend's.
  base::Result<> gather(const RowsOnDevice& from);
  // Of the last step. Valid until the next begin().
  const StepOutput& output() const { return output_; }

 private:
  void collect_draws();
  void read_rows_not_drawn(const RowsOnDevice& from);

  std::uint32_t width_ = 0;
  std::vector<float> logits_;         // [rows_max, width]
  std::vector<plan::RowDraw> draws_;  // of the step, in row order
  std::span<const SlotRows> requests_;
  const StepHooks* hooks_ = nullptr;
  StepOutput output_;
};

}  // namespace llorch::engine::inference
