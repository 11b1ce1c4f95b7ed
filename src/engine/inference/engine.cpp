#include "engine/inference/engine.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::engine::inference {

using namespace plan;
using base::ErrorCode;
using base::Result;
using base::TokenId;

Result<> Engine::reset(std::uint32_t slot, std::uint32_t tokens_max) {
  ASSERT(slot < slots_.size(), "slot={} slots={}", slot, slots_.size());
  pages().release(slot);
  return start(slot, {.tokens_max = tokens_max});
}

Result<> Engine::start(std::uint32_t slot, const SequenceStart& sequence) {
  ASSERT(slot < slots_.size() && sequence.held < tokens_admitted(sequence.tokens_max), "slot={} slots={} held={}", slot,
         slots_.size(), sequence.held);
  const auto is_fixed = [](const StateDescriptor& desc) {
    return desc.lifecycle == StateLifecycle::kSlotPersistent && desc.bytes_per_token == 0;
  };
  ASSERT(sequence.held == 0 || std::ranges::none_of(model().plans.decoder_prefill.plan.state_descs, is_fixed),
         "{} positions without the state they led to", sequence.held);
  for (PartMemory& part : parts_.memories()) {
    TRY(part.state.apply_all(LifecycleAction::kReset, slot));
    if (model().plans.vision_encode) TRY(part.state.apply(LifecycleAction::kDeinit, kVisionStateId, slot));
    if (facts_.predicts) part.hidden.reset(slot);
  }
  admit(slot, sequence.tokens_max);
  slots_[slot].length = sequence.held;
  slots_[slot].cursor.next = sequence.held;
  return {};
}

Result<> Engine::fork(const SequenceFork& sequence) {
  ASSERT(sequence.from < slots_.size() && sequence.to < slots_.size() && sequence.from != sequence.to, "{} to {}",
         sequence.from, sequence.to);
  const SlotFill& parent = slots_[sequence.from];
  const std::uint32_t tokens_max = tokens_admitted(sequence.tokens_max);
  if (tokens_max < parent.length || rotates_long(tokens_max) != rotates_long(parent.tokens_max)) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("a fork of {} positions that may be {} from one that may be {}", parent.length,
                                  tokens_max, parent.tokens_max));
  }
  for (PartMemory& part : parts_.memories()) {
    if (model().plans.vision_encode) TRY(part.state.apply(LifecycleAction::kDeinit, kVisionStateId, sequence.to));
    TRY(part.state.fork({.from = sequence.from, .to = sequence.to}));
    if (facts_.predicts) part.hidden.fork(sequence.from, sequence.to);
  }
  admit(sequence.to, sequence.tokens_max);
  slots_[sequence.to].length = parent.length;
  slots_[sequence.to].cursor = parent.cursor;
  return {};
}

Result<vision::Frames> Engine::frames_of(std::span<const vision::Image> images,
                                         std::span<const float> patch_rows) const {
  if (!model().plans.vision_encode)
    return base::fail(ErrorCode::kInvalidParams, fmt::format("{} as loaded takes no images", facts_.architecture));
  return parts_.memory(0).encoder.frames_of(images, patch_rows);
}

Result<> Engine::check_images(std::span<const vision::Image> images, std::span<const float> patch_rows) const {
  TRY(frames_of(images, patch_rows));
  return {};
}

Result<> Engine::encode_images(std::uint32_t slot, std::span<const vision::Image> images,
                               std::span<const float> patch_rows) {
  ASSERT(slot < slots_.size(), "slot={} slots={}", slot, slots_.size());
  vision::Frames frames = TRY(frames_of(images, patch_rows));
  if (slots_[slot].length != 0) {
    return base::fail(ErrorCode::kInvalidParams, fmt::format("slot {} holds {} positions; images come before the first",
                                                             slot, slots_[slot].length));
  }
  const auto apply = [&](LifecycleAction action) -> Result<> {
    for (PartMemory& part : parts_.memories()) TRY(part.state.apply(action, kVisionStateId, slot));
    return {};
  };
  TRY(apply(LifecycleAction::kAlloc));
  if (Result<> encoded = run_encoder(slot, frames, patch_rows); !encoded) {
    TRY(apply(LifecycleAction::kDeinit));
    return encoded;
  }
  slots_[slot].image_rows = frames.rows_count;
  slots_[slot].frames = std::move(frames.rows);
  return {};
}

Result<> Engine::run_encoder(std::uint32_t slot, const vision::Frames& frames, std::span<const float> patch_rows) {
  vision::ImageEncoder::Progress progress{.slot = slot};
  while (progress.frame < frames.patches.size()) {
    vision::ImageEncoder::Progress next;
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
      next = progress;
      parts_.memory(rank).encoder.fill(next, frames, patch_rows, parts_[rank].encode_ctx);
    }
    progress = next;
    TRY(parts_.run({.kind = PassKind::kEncode}));
  }
  return {};
}

void Engine::admit(std::uint32_t slot, std::uint32_t tokens_max) {
  slots_[slot] = {};
  slots_[slot].tokens_max = tokens_admitted(tokens_max);
  if (model().long_rope_context == 0) return;
  const std::uint8_t is_long = rotates_long(slots_[slot].tokens_max) ? 1 : 0;
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    parts_[rank].backend->copy_to_device(parts_.memory(rank).long_rope_memory.data() + slot,
                                         std::as_bytes(std::span(&is_long, 1)));
  }
}

std::uint32_t Engine::tokens_admitted(std::uint32_t tokens_max) const {
  const std::uint32_t context = limits_.context_tokens_max;
  return tokens_max == 0 ? context : std::min(tokens_max, context);
}

bool Engine::rotates_long(std::uint32_t tokens_max) const {
  return model().long_rope_context != 0 && tokens_max > model().long_rope_context;
}

Result<> Engine::reserve_pages(std::span<const SlotRows> requests) {
  for (const SlotRows& request : requests) {
    const std::uint32_t length = slots_[request.slot].length;
    const auto rows = static_cast<std::uint32_t>(request.tokens.size());
    if (parts_.kv().reserve(request.slot, length, length + rows)) continue;
    std::string counts;
    for (std::uint32_t g = 0; g < pages().groups_count(); ++g) {
      const paging::PageCounts group = pages().counts(g);
      counts += fmt::format("{}{} of {} taken", g == 0 ? "" : ", ", group.used, group.total);
    }
    return base::fail(ErrorCode::kOutOfDeviceMemory,
                      fmt::format("no cache pages for {} more positions of slot {}, which holds {} (pages: {}); end "
                                  "another sequence, or load with more kv_tokens",
                                  rows, request.slot, length, counts));
  }
  parts_.kv().upload();
  return {};
}

Result<> Engine::check_whole(std::span<const SlotRows> requests) const {
  if (!facts_.whole_sequences) return {};
  for (const SlotRows& request : requests) {
    if (slots_[request.slot].length == 0) continue;
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("slot {} holds {} positions; this model computes a sequence in one step",
                                  request.slot, slots_[request.slot].length));
  }
  return {};
}

// Where a wrong proposal would leave its trace.
void Engine::checkpoint(std::span<const SlotRows> requests) {
  for (const SlotRows& request : requests) {
    if (request.proposals == 0) continue;
    slots_[request.slot].checkpoint = slots_[request.slot].length;
    if (facts_.paged) continue;
    ASSERT(facts_.proposal_rows_max > 0, "loaded without room for proposals");
    for (PartMemory& part : parts_.memories()) part.state.checkpoint(request.slot);
  }
}

void Engine::rewind(std::uint32_t slot, std::uint32_t length) {
  SlotFill& fill = slots_[slot];
  ASSERT(length <= fill.length, "slot {} holds {} positions, not {}", slot, fill.length, length);
  if (length == fill.length) return;
  if (!facts_.paged) {
    ASSERT(length == fill.checkpoint, "slot {} has the state of {} positions, not {}", slot, fill.checkpoint, length);
    for (PartMemory& part : parts_.memories()) part.state.restore(slot);
  }
  if (facts_.predicts) parts_.memory(0).hidden.rewind(slot, length);
  // Proposals stand behind all images: rows of text, a position each.
  if (model().plans.vision_encode) fill.cursor.next -= fill.length - length;
  fill.length = length;
}

Result<StepOutput> Engine::step(std::span<const SlotRows> requests, const StepHooks& hooks) {
  TRY(check_whole(requests));
  for (std::size_t rank = 0; rank < parts_.size(); ++rank)
    TRY(parts_.memory(rank).batch.build(requests, slots_, parts_[rank].ctx));
  TRY(reserve_pages(requests));
  checkpoint(requests);
  const ExecutionContext& ctx = parts_[0].ctx;  // but for addresses all are the same
  outputs_.begin(requests, hooks);
  const PassKind kind = ctx.mode == ExecutionMode::kDecode ? PassKind::kDecode : PassKind::kPrefill;
  TRY(parts_.run({.kind = kind, .rows = &outputs_, .observer = observer_}));
  if (facts_.predicts) TRY(follow(kind));
  const std::span<const vision::RowCursor> cursors = parts_.memory(0).batch.cursors();
  for (std::size_t b = 0; b < requests.size(); ++b) {
    SlotFill& fill = slots_[requests[b].slot];
    fill.length = ctx.sequence_lengths[b];
    if (!cursors.empty()) fill.cursor = cursors[b];
  }
  return outputs_.output();
}

// The predictor takes every row that the model took, so that its cache is as long.
Result<> Engine::follow(PassKind kind) {
  const PartMemory& room = parts_.memory(0);
  ExecutionContext& ctx = parts_[0].predict_ctx;
  ctx = parts_[0].ctx;
  ctx.counters = nullptr;
  ctx.output_rows = {};
  ctx.hidden_rows = parts_.memory(0).hidden.follow(ctx, room.states_of(kind));
  return parts_.run({.kind = PassKind::kPredict});
}

bool Engine::can_foresee(std::uint32_t slot, std::uint32_t position) const {
  const auto& tables = parts_.kv().tables();
  return position < slots_[slot].tokens_max && position < tables.pages_held(0, slot) * kPageTokens &&
         parts_.memory(0).hidden.knows({.slot = slot, .position = position});
}

Result<StepOutput> Engine::foresee(std::span<const ForeseenRow> rows) {
  ASSERT(facts_.predicts, "loaded without the layer that predicts");
  PartMemory& room = parts_.memory(0);
  ExecutionContext& ctx = parts_[0].predict_ctx;
  foreseen_.clear();
  places_.clear();
  for (const ForeseenRow& row : rows) {
    foreseen_.push_back({.slot = row.slot, .tokens = {&row.token, 1}});
    places_.push_back({.slot = row.slot, .position = row.position});
  }
  // Rows stand behind what the slots hold.
  const auto exchange_lengths = [&] {
    for (auto& place : places_) std::swap(place.position, slots_[place.slot].length);
  };
  exchange_lengths();
  Result<> built = room.batch.build(foreseen_, slots_, ctx);
  exchange_lengths();
  TRY(std::move(built));
  parts_.kv().upload();
  ctx.hidden_rows = room.hidden.stage(places_);
  const StepHooks nobody;  // draws there
  outputs_.begin(foreseen_, nobody);
  TRY(parts_.run({.kind = PassKind::kPredict, .rows = &outputs_}));
  room.hidden.keep(places_, room.states_of(PassKind::kPredict, !model().predictor_hands_on_unnormed));
  return outputs_.output();
}

Result<std::span<const float>> Engine::prefill(std::uint32_t slot, std::span<const TokenId> tokens) {
  TRY(parts_.memory(0).batch.check_request({.slot = slot, .tokens = tokens, .wanted = RowsWanted::kNone},
                                           slots_[slot]));
  while (tokens.size() > prefill_chunk_) {
    const SlotRows chunk{.slot = slot, .tokens = tokens.first(prefill_chunk_), .wanted = RowsWanted::kNone};
    TRY(step({&chunk, 1}));
    tokens = tokens.subspan(prefill_chunk_);
  }
  const SlotRows last{.slot = slot, .tokens = tokens, .wanted = RowsWanted::kLast};
  return TRY(step({&last, 1})).logits;
}

Result<std::span<const float>> Engine::decode(std::uint32_t slot, TokenId token) { return prefill(slot, {&token, 1}); }

Result<> Engine::score(std::uint32_t slot, std::span<const TokenId> tokens, const RowSink& sink) {
  TRY(parts_.memory(0).batch.check_request({.slot = slot, .tokens = tokens, .wanted = RowsWanted::kNone},
                                           slots_[slot]));
  const std::size_t chunk_max = std::min(prefill_chunk_, limits_.output_rows_max);
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = std::min(chunk_max, tokens.size() - done);
    const SlotRows chunk{.slot = slot, .tokens = tokens.subspan(done, count), .wanted = RowsWanted::kAll};
    const StepOutput output = TRY(step({&chunk, 1}));
    for (std::size_t r = 0; r < count; ++r) sink(done + r, output.row(r));
    done += count;
  }
  return {};
}

}  // namespace llorch::engine::inference
