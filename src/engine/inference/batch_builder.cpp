#include "engine/inference/batch_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::engine::inference {

using base::ErrorCode;
using base::TokenId;
using plan::StepLimits;

std::uint64_t BatchBuilder::device_bytes(const StepLimits& limits, const BatchModel& model) {
  const std::uint64_t arrays = 3 + (model.token_types > 1 ? 1 : 0) + (model.takes_images ? 3 : 0);
  return arrays * limits.rows_max * sizeof(std::uint32_t);
}

base::Result<BatchBuilder> BatchBuilder::make(const StepLimits& limits, const BatchModel& model,
                                              plan::Backend& backend) {
  BatchBuilder builder;
  builder.backend_ = &backend;
  builder.limits_ = limits;
  builder.model_ = model;
  builder.active_slots_.reserve(limits.slots_max);
  builder.sequence_lengths_.reserve(limits.slots_max);
  builder.row_offsets_.reserve(limits.slots_max + std::size_t{1});
  builder.output_rows_.reserve(limits.output_rows_max);
  builder.image_rows_.reserve(limits.slots_max);
  builder.cursors_.reserve(limits.slots_max);
  const std::uint64_t bytes = device_bytes(limits, model);
  builder.rows_.resize(bytes / sizeof(std::uint32_t));
  builder.device_ = TRY(plan::DeviceBuffer::allocate(backend, bytes, plan::MemoryPurpose::kTables));
  return builder;
}

base::Result<> BatchBuilder::check_request(const SlotRows& request, const SlotFill& fill) const {
  ASSERT(request.slot < limits_.slots_max && request.tokens.size() > request.proposals,
         "slot={} tokens={} proposals={}", request.slot, request.tokens.size(), request.proposals);
  if (fill.length + request.tokens.size() > fill.tokens_max) {
    return base::fail(ErrorCode::kContextExhausted,
                      fmt::format("slot {} holds {} of {} positions; {} more do not fit", request.slot, fill.length,
                                  fill.tokens_max, request.tokens.size()));
  }
  const auto outside = [&](TokenId token) { return !is_token(token, model_.vocab, model_.token_types); };
  if (std::ranges::any_of(request.tokens, outside)) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("a token id is outside the vocabulary of {}", model_.vocab));
  }
  return {};
}

base::Result<> BatchBuilder::check(std::span<const SlotRows> requests, std::span<const SlotFill> fills) const {
  std::uint64_t rows = 0;
  std::uint64_t outputs = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const SlotRows& request = requests[i];
    ASSERT(i == 0 || requests[i - 1].slot < request.slot, "slots must ascend: {} after {}", request.slot,
           requests[i - 1].slot);
    TRY(check_request(request, fills[request.slot]));
    rows += request.tokens.size();
    outputs += request.outputs();
  }
  if (rows == 0 || rows > limits_.rows_max || outputs > limits_.output_rows_max) {
    return base::fail(ErrorCode::kInvalidBatchSize,
                      fmt::format("a step of {} rows and {} outputs; 1..{} rows and at most {} outputs were planned",
                                  rows, outputs, limits_.rows_max, limits_.output_rows_max));
  }
  return {};
}

bool BatchBuilder::is_image_row(std::uint32_t id) const {
  return std::ranges::find(model_.image_row_ids, id) != model_.image_row_ids.end();
}

// Three positions for each of `total` rows, and which rows of images the requests have met.
void BatchBuilder::place_images(std::span<const SlotRows> requests, std::span<const SlotFill> fills,
                                std::uint32_t total) {
  cursors_.clear();
  image_rows_.clear();
  std::uint32_t* at = rows_.data() + places_begin();
  bool any = false;
  for (const SlotRows& request : requests) {
    const SlotFill& fill = fills[request.slot];
    vision::RowCursor cursor = fill.cursor;
    for (const TokenId token : request.tokens) {
      const vision::RowPosition place = vision::place_row(cursor, is_image_row(index(token)), fill.frames);
      at[0] = place.time;
      at[total] = place.row;
      at[2 * std::size_t{total}] = place.column;
      ++at;
    }
    any = any || cursor.image_rows != fill.cursor.image_rows;
    image_rows_.push_back({.begin = fill.cursor.image_rows, .end = fill.image_rows});
    cursors_.push_back(cursor);
  }
  if (!any) image_rows_.clear();
}

base::Result<> BatchBuilder::build(std::span<const SlotRows> requests, std::span<const SlotFill> fills,
                                   plan::ExecutionContext& ctx) {
  TRY(check(requests, fills));
  active_slots_.clear();
  sequence_lengths_.clear();
  row_offsets_.assign(1, 0);
  output_rows_.clear();
  std::uint32_t* const row_ids = rows_.data();
  std::uint32_t* const positions = row_ids + limits_.rows_max;
  std::uint32_t* const slot_of_row = positions + limits_.rows_max;
  std::uint32_t* const types = model_.token_types > 1 ? slot_of_row + limits_.rows_max : nullptr;
  std::uint32_t row = 0;
  for (const SlotRows& request : requests) {
    for (std::size_t t = 0; t < request.tokens.size(); ++t, ++row) {
      row_ids[row] = row_id_of(request.tokens[t]);
      if (types != nullptr) types[row] = type_of(request.tokens[t]);
      positions[row] = fills[request.slot].length + static_cast<std::uint32_t>(t);
      slot_of_row[row] = request.slot;
      if (t + request.outputs() >= request.tokens.size()) output_rows_.push_back(row);
    }
    active_slots_.push_back(request.slot);
    sequence_lengths_.push_back(fills[request.slot].length + static_cast<std::uint32_t>(request.tokens.size()));
    row_offsets_.push_back(row);
  }
  if (model_.takes_images) place_images(requests, fills, row);
  backend_->copy_to_device(device_.data(), std::as_bytes(std::span(rows_)));
  const auto* device = reinterpret_cast<const std::uint32_t*>(device_.data());
  ctx.batch_size = static_cast<std::uint32_t>(requests.size());
  ctx.total_rows = row;
  ctx.active_slots = active_slots_;
  ctx.sequence_lengths = sequence_lengths_;
  ctx.row_offsets = row_offsets_;
  ctx.output_rows = output_rows_;
  ctx.row_ids = device;
  ctx.positions = device + limits_.rows_max;
  ctx.slot_of_row = device + 2ULL * limits_.rows_max;
  ctx.row_types = model_.token_types > 1 ? device + 3ULL * limits_.rows_max : nullptr;
  ctx.positions3 = model_.takes_images ? device + places_begin() : nullptr;
  ctx.image_rows = image_rows_;
  const bool decodes = row == requests.size() && image_rows_.empty();
  ctx.mode = decodes ? plan::ExecutionMode::kDecode : plan::ExecutionMode::kPrefill;
  return {};
}

}  // namespace llorch::engine::inference
