#include "engine/inference/output_rows.h"

namespace llorch::engine::inference {

using base::Result;
using plan::RowDraw;

OutputRows::OutputRows(std::uint32_t rows_max, std::uint32_t width)
    : width_(width), logits_(std::size_t{rows_max} * width) {
  draws_.reserve(rows_max);
}

void OutputRows::begin(std::span<const SlotRows> requests, const StepHooks& hooks) {
  draws_.clear();
  requests_ = requests;
  hooks_ = &hooks;
  output_ = {.logits = {}, .width = width_};
}

Result<> OutputRows::gather(const RowsOnDevice& from) {
  output_.logits = std::span(logits_).first(from.count * width_);
  if (from.device_sampler != nullptr && hooks_->draw) collect_draws();
  if (!draws_.empty()) from.device_sampler->draw(reinterpret_cast<float*>(from.rows), draws_);
  if (hooks_->meanwhile) hooks_->meanwhile();
  if (!draws_.empty()) output_.drawn = TRY(from.device_sampler->wait());
  read_rows_not_drawn(from);
  if (!draws_.empty() && draws_.size() == from.count) return {};
  return from.backend.synchronize();
}

void OutputRows::collect_draws() {
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    // A row behind a proposal can only be drawn from once the proposal has been drawn: on the host.
    const bool may_draw = requests_[i].wanted == RowsWanted::kLast && requests_[i].proposals == 0;
    if (const RowDraw* draw = may_draw ? hooks_->draw(i) : nullptr; draw != nullptr) {
      draws_.push_back(*draw);
      draws_.back().row = row;
    }
    row += requests_[i].outputs();
  }
}

// Runs of rows between those that were drawn from, each with one copy.
void OutputRows::read_rows_not_drawn(const RowsOnDevice& from) {
  const auto read = [&](std::size_t begin, std::size_t end) {
    const std::span<float> to = std::span(logits_).subspan(begin * width_, (end - begin) * width_);
    const std::byte* const source = from.rows + begin * width_ * sizeof(float);
    if (!to.empty()) from.backend.copy_to_host(std::as_writable_bytes(to), source);
  };
  std::size_t begin = 0;
  for (const RowDraw& draw : draws_) {
    read(begin, draw.row);
    begin = draw.row + std::size_t{1};
  }
  read(begin, from.count);
}

}  // namespace llorch::engine::inference
