#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/contract/adapter.h"
#include "engine/contract/backend.h"

namespace llorch::engine::inference {

// Of which of a request's rows the logits are wanted.
enum class RowsWanted : std::uint8_t { kNone, kLast, kAll };

// The next tokens of one slot.
struct SlotRows {
  std::uint32_t slot = 0;
  std::span<const base::TokenId> tokens;  // at least one
  RowsWanted wanted = RowsWanted::kLast;
};

// What a slot holds and may hold, in positions.
struct SlotFill {
  std::uint32_t length = 0;
  std::uint32_t tokens_max = 0;
};

// Turns requests into a ragged batch. All memory is taken by make(); build() allocates nothing unless it fails.
class BatchBuilder {
 public:
  static std::uint64_t device_bytes(const contract::StepLimits& limits);
  static base::Result<BatchBuilder> make(const contract::StepLimits& limits, std::uint32_t vocab,
                                         contract::Backend& backend);

  // One request of any length: tokens in the vocabulary, room in the slot. Errors: INVALID_PARAMS, CONTEXT_EXHAUSTED.
  base::Result<> check_request(const SlotRows& request, const SlotFill& fill) const;

  // Checks the requests and fills the batch part of `ctx`. `fills` are all slots', by number.
  // REQUIRES: requests in strictly ascending slot order, slots within the limits, each with a token.
  // Errors: INVALID_PARAMS (a token outside the vocabulary), CONTEXT_EXHAUSTED, INVALID_BATCH_SIZE.
  base::Result<> build(std::span<const SlotRows> requests, std::span<const SlotFill> fills,
                       contract::ExecutionContext& ctx);

 private:
  base::Result<> check(std::span<const SlotRows> requests, std::span<const SlotFill> fills) const;

  contract::Backend* backend_ = nullptr;
  contract::StepLimits limits_;
  std::uint32_t vocab_ = 0;
  std::vector<std::uint32_t> active_slots_, sequence_lengths_, row_offsets_, output_rows_;
  std::vector<std::uint32_t> rows_;  // host copy of device_: row ids, positions, slots, rows_max of each
  contract::DeviceBuffer device_;
};

}  // namespace llorch::engine::inference
