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
  for (RankMemory& rank : step_.ranks) {
    TRY(rank.state.apply_all(LifecycleAction::kReset, slot));
    if (model().plans.vision_encode) TRY(rank.state.apply(LifecycleAction::kDeinit, kVisionStateId, slot));
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
  for (RankMemory& rank : step_.ranks) {
    if (model().plans.vision_encode) TRY(rank.state.apply(LifecycleAction::kDeinit, kVisionStateId, sequence.to));
    TRY(rank.state.fork({.from = sequence.from, .to = sequence.to}));
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
  return step_.ranks[0].encoder.frames_of(images, patch_rows);
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
    for (RankMemory& rank : step_.ranks) TRY(rank.state.apply(action, kVisionStateId, slot));
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
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      next = progress;
      step_.ranks[rank].encoder.fill(next, frames, patch_rows, ranks_[rank].encode_ctx);
    }
    progress = next;
    TRY(run({.plan = &RankMemory::encode_plan, .ctx = &Rank::encode_ctx}));
  }
  return {};
}

Result<> Engine::run(const Pass& pass) {
  if (collective_ != nullptr) TRY(collective_->begin());
  const auto nobody = static_cast<std::uint32_t>(ranks_.size());
  failed_.store(nobody, std::memory_order_relaxed);
  threads_->run([&](std::uint32_t rank) { run_rank(pass, rank); });
  const std::uint32_t failed = failed_.load(std::memory_order_relaxed);
  return failed == nobody ? Result<>() : outcome_of(failed);
}

void Engine::run_rank(const Pass& pass, std::uint32_t rank) noexcept {
  Rank& own = ranks_[rank];
  plan::ExecutionContext& ctx = own.*pass.ctx;
  const PreparedPlan& plan = step_.ranks[rank].*pass.plan;
  own.counters = {};
  own.backend->begin_step(ctx);
  Status status = inference::run(ctx, plan.instructions(), rank == 0 ? pass.observer : nullptr,
                                 {.collective = collective_, .rank = rank});
  const bool has_run = status.is_ok();
  std::byte* rows = nullptr;  // of logits
  if (has_run && pass.harvest != nullptr) {
    rows = plan.output_of(plan.instructions().size() - 1);
    if (DeviceBuffer& joined = step_.ranks[rank].joined_logits; joined.data() != nullptr) {
      status = join_logits(rank, rows);
      rows = joined.data();
    }
  }
  own.backend->end_step();
  if (has_run && !status.is_ok()) {
    own.outcome = base::fail(status.error(),
                             fmt::format("the rows of logits could not be joined on {}", own.backend->device_class()));
  } else if (!status.is_ok()) {
    own.outcome = base::fail(status.error(), fmt::format("instruction {} of the plan failed on {}", own.counters.total,
                                                         own.backend->device_class()));
  } else if (rank == 0 && pass.harvest != nullptr) {
    own.outcome = gather(*pass.harvest, rows);
  } else {
    own.outcome = own.backend->synchronize();
  }
  if (own.outcome) return;
  // The first to fail is the one to tell of; the others fail because it will not come.
  auto nobody = static_cast<std::uint32_t>(ranks_.size());
  failed_.compare_exchange_strong(nobody, rank, std::memory_order_relaxed);
  if (collective_ != nullptr) collective_->abort();
}

// Each device has made its part of every row.
Status Engine::join_logits(std::uint32_t rank, const std::byte* part) noexcept {
  const std::uint64_t rows = ranks_[rank].ctx.output_rows.size();
  if (rows == 0) return Status::ok();
  return collective_->join(rank, {.part = reinterpret_cast<const float*>(part),
                                  .whole = reinterpret_cast<float*>(step_.ranks[rank].joined_logits.data()),
                                  .rows = rows,
                                  .width = facts_.output_width / ranks_.size()});
}

Result<> Engine::outcome_of(std::uint32_t rank) const {
  if (ranks_[rank].outcome) return {};
  return base::fail(parallel::error_at(ranks_[rank].outcome.error(), rank, static_cast<std::uint32_t>(ranks_.size())));
}

std::vector<std::uint64_t> Engine::memory_used_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const Rank& rank : ranks_) bytes.push_back(rank.backend->memory_used_bytes());
  return bytes;
}

Result<> Engine::check_residency() {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].outcome = ranks_[rank].backend->check_residency();
    TRY(outcome_of(rank));
  }
  return {};
}

void Engine::admit(std::uint32_t slot, std::uint32_t tokens_max) {
  slots_[slot] = {};
  slots_[slot].tokens_max = tokens_admitted(tokens_max);
  if (model().long_rope_context == 0) return;
  const std::uint8_t is_long = rotates_long(slots_[slot].tokens_max) ? 1 : 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].backend->copy_to_device(step_.ranks[rank].long_rope_memory.data() + slot,
                                         std::as_bytes(std::span(&is_long, 1)));
  }
}

std::uint32_t Engine::tokens_admitted(std::uint32_t tokens_max) const {
  const std::uint32_t context = limits_.context_tokens_max;
  return tokens_max == 0 ? context : std::min(tokens_max, context);
}

bool Engine::caches_prefixes() const {
  const auto in_pages = [](const StateDescriptor& desc) {
    return desc.kind == StateKind::kKv || desc.lifecycle != StateLifecycle::kSlotPersistent;
  };
  return std::ranges::all_of(model().plans.decoder_prefill.plan.state_descs, in_pages);
}

bool Engine::has_windows() const {
  const paging::PageTables& tables = step_.kv->tables();
  for (std::uint32_t group = 0; group < tables.groups_count(); ++group)
    if (tables.group(group).window_tokens != 0) return true;
  return false;
}

bool Engine::rotates_long(std::uint32_t tokens_max) const {
  return model().long_rope_context != 0 && tokens_max > model().long_rope_context;
}

Result<> Engine::reserve_pages(std::span<const SlotRows> requests) {
  for (const SlotRows& request : requests) {
    const std::uint32_t length = slots_[request.slot].length;
    const auto rows = static_cast<std::uint32_t>(request.tokens.size());
    if (step_.kv->reserve(request.slot, length, length + rows)) continue;
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
  step_.kv->upload();
  return {};
}

Result<> Engine::check_whole(std::span<const SlotRows> requests) const {
  if (!wants_whole_sequences()) return {};
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
    if (rewinds_by_rows()) continue;
    ASSERT(facts_.proposal_rows_max > 0, "loaded without room for proposals");
    for (RankMemory& rank : step_.ranks) rank.state.checkpoint(request.slot);
  }
}

void Engine::rewind(std::uint32_t slot, std::uint32_t length) {
  SlotFill& fill = slots_[slot];
  ASSERT(length <= fill.length, "slot {} holds {} positions, not {}", slot, fill.length, length);
  if (length == fill.length) return;
  if (!rewinds_by_rows()) {
    ASSERT(length == fill.checkpoint, "slot {} has the state of {} positions, not {}", slot, fill.checkpoint, length);
    for (RankMemory& rank : step_.ranks) rank.state.restore(slot);
  }
  // Proposals stand behind all images: rows of text, a position each.
  if (model().plans.vision_encode) fill.cursor.next -= fill.length - length;
  fill.length = length;
}

Result<StepOutput> Engine::step(std::span<const SlotRows> requests, const StepHooks& hooks) {
  TRY(check_whole(requests));
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    TRY(step_.ranks[rank].batch.build(requests, slots_, ranks_[rank].ctx));
  TRY(reserve_pages(requests));
  checkpoint(requests);
  const ExecutionContext& ctx = ranks_[0].ctx;  // but for addresses all are the same
  StepOutput output{.logits = std::span(logits_).first(ctx.output_rows.size() * facts_.output_width),
                    .width = facts_.output_width};
  const Harvest harvest{.requests = requests, .hooks = hooks, .output = output};
  TRY(run({.plan = ctx.mode == ExecutionMode::kDecode ? &RankMemory::decode_plan : &RankMemory::prefill_plan,
           .ctx = &Rank::ctx,
           .harvest = &harvest,
           .observer = observer_}));
  const std::span<const vision::RowCursor> cursors = step_.ranks[0].batch.cursors();
  for (std::size_t b = 0; b < requests.size(); ++b) {
    SlotFill& fill = slots_[requests[b].slot];
    fill.length = ctx.sequence_lengths[b];
    if (!cursors.empty()) fill.cursor = cursors[b];
  }
  return output;
}

// On the caller's thread, while the devices run.
Result<> Engine::gather(const Harvest& harvest, std::byte* rows) {
  const std::unique_ptr<DeviceSampler>& device_sampler = step_.ranks[0].device_sampler;
  collect_draws(harvest.requests, harvest.hooks);
  if (!draws_.empty()) device_sampler->draw(reinterpret_cast<float*>(rows), draws_);
  if (harvest.hooks.meanwhile) harvest.hooks.meanwhile();
  if (!draws_.empty()) harvest.output.drawn = TRY(device_sampler->wait());
  read_rows_not_drawn(rows);
  if (!draws_.empty() && draws_.size() == ranks_[0].ctx.output_rows.size()) return {};
  return ranks_[0].backend->synchronize();
}

void Engine::collect_draws(std::span<const SlotRows> requests, const StepHooks& hooks) {
  draws_.clear();
  if (!draws() || !hooks.draw) return;
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    // A row behind a proposal can only be drawn from once the proposal has been drawn: on the host.
    const bool may_draw = requests[i].wanted == RowsWanted::kLast && requests[i].proposals == 0;
    if (const RowDraw* draw = may_draw ? hooks.draw(i) : nullptr; draw != nullptr) {
      draws_.push_back(*draw);
      draws_.back().row = row;
    }
    row += requests[i].outputs();
  }
}

// Runs of rows between those that were drawn from, each with one copy.
void Engine::read_rows_not_drawn(const std::byte* rows) {
  const std::size_t rows_count = ranks_[0].ctx.output_rows.size(), width = facts_.output_width;
  const auto read = [&](std::size_t begin, std::size_t end) {
    const std::span<float> to = std::span(logits_).subspan(begin * width, (end - begin) * width);
    const std::byte* const from = rows + begin * width * sizeof(float);
    if (!to.empty()) ranks_[0].backend->copy_to_host(std::as_writable_bytes(to), from);
  };
  std::size_t begin = 0;
  for (const RowDraw& draw : draws_) {
    read(begin, draw.row);
    begin = draw.row + std::size_t{1};
  }
  read(begin, rows_count);
}

Result<std::span<const float>> Engine::prefill(std::uint32_t slot, std::span<const TokenId> tokens) {
  TRY(step_.ranks[0].batch.check_request({.slot = slot, .tokens = tokens, .wanted = RowsWanted::kNone}, slots_[slot]));
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
  TRY(step_.ranks[0].batch.check_request({.slot = slot, .tokens = tokens, .wanted = RowsWanted::kNone}, slots_[slot]));
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
