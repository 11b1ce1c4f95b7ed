#include "engine/inference/speculation/hidden_states.h"

#include "base/assert.h"

namespace llorch::engine::inference::speculation {

using plan::DeviceBuffer;
using plan::MemoryPurpose;

std::uint64_t HiddenStates::device_bytes(const plan::StepLimits& limits, std::uint32_t width) {
  return (std::uint64_t{limits.rows_max} + 3 * std::uint64_t{limits.slots_max}) * width * sizeof(float);
}

base::Result<HiddenStates> HiddenStates::make(const plan::StepLimits& limits, std::uint32_t width,
                                              plan::Backend& backend) {
  HiddenStates states;
  states.backend_ = &backend;
  states.row_bytes_ = std::uint64_t{width} * sizeof(float);
  const auto rows = [&](std::uint32_t count) {
    return DeviceBuffer::allocate(backend, count * states.row_bytes_, MemoryPurpose::kActivations);
  };
  states.step_ = TRY(rows(limits.rows_max));
  states.last_ = TRY(rows(limits.slots_max));
  states.own_ = TRY(rows(limits.slots_max));
  states.staged_ = TRY(rows(limits.slots_max));
  states.rows_.resize(limits.slots_max);
  return states;
}

void HiddenStates::reset(std::uint32_t slot) {
  backend_->zero(at(last_, slot), row_bytes_);
  rows_[slot] = {};
}

void HiddenStates::fork(std::uint32_t from, std::uint32_t to) {
  backend_->copy_on_device(at(last_, to), at(last_, from), row_bytes_);
  rows_[to] = {.last = rows_[from].last};
}

const float* HiddenStates::follow(const plan::ExecutionContext& ctx, const std::byte* states) {
  ++step_number_;
  for (std::uint32_t b = 0; b < ctx.batch_size; ++b) {
    const std::uint32_t slot = ctx.active_slots[b], row = ctx.row_offsets[b], count = ctx.row_offsets[b + 1] - row;
    const std::uint32_t length = ctx.sequence_lengths[b];
    backend_->copy_on_device(at(step_, row), at(last_, slot), row_bytes_);
    if (count > 1) backend_->copy_on_device(at(step_, row + 1), states + row * row_bytes_, (count - 1) * row_bytes_);
    backend_->copy_on_device(at(last_, slot), states + (row + count - 1) * row_bytes_, row_bytes_);
    rows_[slot] = {.step = step_number_, .row = row, .first = length - count, .count = count, .last = length};
  }
  return reinterpret_cast<const float*>(step_.data());
}

void HiddenStates::rewind(std::uint32_t slot, std::uint32_t length) {
  Rows& rows = rows_[slot];
  if (rows.step != step_number_ || length < rows.first || length >= rows.first + rows.count) return reset(slot);
  backend_->copy_on_device(at(last_, slot), at(step_, rows.row + length - rows.first), row_bytes_);
  rows.last = length;
}

const std::byte* HiddenStates::source_of(const Place& place) const {
  const Rows& rows = rows_[place.slot];
  if (place.position == 0) return nullptr;
  if (place.position == rows.own) return at(own_, place.slot);
  if (place.position == rows.last) return at(last_, place.slot);
  if (rows.step != step_number_ || place.position < rows.first || place.position >= rows.first + rows.count)
    return nullptr;
  return at(step_, rows.row + place.position - rows.first);
}

const float* HiddenStates::stage(std::span<const Place> places) {
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    const std::byte* const source = source_of(places[i]);
    ASSERT(source != nullptr, "no state before position {} of slot {}", places[i].position, places[i].slot);
    backend_->copy_on_device(at(staged_, i), source, row_bytes_);
  }
  return reinterpret_cast<const float*>(staged_.data());
}

void HiddenStates::keep(std::span<const Place> places, const std::byte* states) {
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    backend_->copy_on_device(at(own_, places[i].slot), states + i * row_bytes_, row_bytes_);
    rows_[places[i].slot].own = places[i].position + 1;
  }
}

}  // namespace llorch::engine::inference::speculation
