#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/inference/vision/row_positions.h"
#include "engine/plan/adapter.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference {

// Of which of a request's rows the logits are wanted.
enum class RowsWanted : std::uint8_t { kNone, kLast, kAll };

// The next tokens of one slot.
struct SlotRows {
  std::uint32_t slot = 0;
  std::span<const base::TokenId> tokens;  // at least one
  RowsWanted wanted = RowsWanted::kLast;
  // The last of `tokens` that are proposals, fewer than all: the slot may have to go back (Engine::rewind()). With kLast their
  // logits are wanted too.
  std::uint32_t proposals = 0;

  std::uint32_t outputs() const {
    if (wanted == RowsWanted::kLast) return 1 + proposals;
    return wanted == RowsWanted::kAll ? static_cast<std::uint32_t>(tokens.size()) : 0;
  }
};

// What a slot holds and may hold, in positions, and the images of its request.
struct SlotFill {
  std::uint32_t length = 0;
  std::uint32_t tokens_max = 0;
  std::uint32_t checkpoint = 0;          // positions it held before its last step with proposals
  std::vector<plan::VisionGrid> frames;  // in rows; encoded
  std::uint32_t image_rows = 0;          // of all frames
  vision::RowCursor cursor;
};

// A token of a pair's second text: which text a token is of stands above its id.
inline constexpr std::uint32_t kTokenTypeShift = 24;
constexpr std::uint32_t row_id_of(base::TokenId token) { return index(token) & ((1U << kTokenTypeShift) - 1); }
constexpr std::uint32_t type_of(base::TokenId token) { return index(token) >> kTokenTypeShift; }
// `token_types` as in BatchModel.
constexpr bool is_token(base::TokenId token, std::uint32_t vocab, std::uint32_t token_types) {
  return row_id_of(token) < vocab && (type_of(token) == 0 || type_of(token) < token_types);
}

// What of a model's configuration a batch shows.
struct BatchModel {
  std::uint32_t vocab = 0;
  bool takes_images = false;                     // rows have three positions
  std::array<std::uint32_t, 2> image_row_ids{};  // with takes_images
  std::uint32_t token_types = 0;                 // 0: tokens have none; above 1 rows say theirs
};

// Turns requests into a ragged batch. All memory is taken by make(); build() allocates nothing unless it fails.
class BatchBuilder {
 public:
  static std::uint64_t device_bytes(const plan::StepLimits& limits, const BatchModel& model);
  static base::Result<BatchBuilder> make(const plan::StepLimits& limits, const BatchModel& model,
                                         plan::Backend& backend);

  // One request of any length: tokens in the vocabulary, room in the slot. Errors: INVALID_PARAMS, CONTEXT_EXHAUSTED.
  base::Result<> check_request(const SlotRows& request, const SlotFill& fill) const;

  // Checks the requests and fills the batch part of `ctx`. `fills` are all slots', by number.
  // REQUIRES: requests in strictly ascending slot order, slots within the limits, each with a token.
  // Errors: INVALID_PARAMS (a token outside the vocabulary), CONTEXT_EXHAUSTED, INVALID_BATCH_SIZE.
  base::Result<> build(std::span<const SlotRows> requests, std::span<const SlotFill> fills,
                       plan::ExecutionContext& ctx);

  // Where the requests of the last batch stand once it has run, in order. Empty for models without images.
  std::span<const vision::RowCursor> cursors() const { return cursors_; }

 private:
  base::Result<> check(std::span<const SlotRows> requests, std::span<const SlotFill> fills) const;
  bool is_image_row(std::uint32_t id) const;
  std::uint64_t places_begin() const { return (model_.token_types > 1 ? 4ULL : 3ULL) * limits_.rows_max; }
  void place_images(std::span<const SlotRows> requests, std::span<const SlotFill> fills, std::uint32_t total);

  plan::Backend* backend_ = nullptr;
  plan::StepLimits limits_;
  BatchModel model_;
  std::vector<std::uint32_t> active_slots_, sequence_lengths_, row_offsets_, output_rows_;
  std::vector<plan::ImageRows> image_rows_;  // empty when no row of the batch is an image's
  std::vector<vision::RowCursor> cursors_;
  // Host copy of device_: row ids, positions, slots, types of tokens where they have some, rows_max of each; with images [3][T]
  // positions.
  std::vector<std::uint32_t> rows_;
  plan::DeviceBuffer device_;
};

}  // namespace llorch::engine::inference
