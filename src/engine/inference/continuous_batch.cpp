#include "engine/inference/continuous_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference {

using base::ErrorCode;
using base::Result;
using base::TokenId;

namespace {

scheduling::SchedulerOptions scheduler_options(const Engine& engine, const ContinuousBatchOptions& options) {
  const EngineFacts& facts = engine.facts();
  const bool whole = engine.facts().whole_sequences;
  const bool chunked = options.prefill_chunk != 0 && !whole;
  return {.slots = facts.slots,
          .rows_max = facts.rows_max,
          .outputs_max = facts.output_rows_max,
          .prefill_chunk = chunked ? std::min(options.prefill_chunk, facts.rows_max) : facts.rows_max,
          .context_tokens = facts.context_tokens,
          .whole_sequences = whole,
          .cache_prefixes = engine.facts().paged && !options.cache_salt.empty() && !whole,
          .cache_ttl_ms = options.cache_ttl_ms,
          .rewinds_whole_steps = !engine.facts().paged};
}

}  // namespace

ContinuousBatch::ContinuousBatch(Engine& engine, const ContinuousBatchOptions& options)
    : engine_(engine),
      options_(options),
      scheduler_(scheduler_options(engine, options), engine.pages()),
      may_grow_(engine.facts().kv_tokens_max > engine.facts().kv_tokens) {
  rows_.reserve(engine.facts().slots);
  in_step_.reserve(engine.facts().slots);
  const bool can_propose = engine.facts().proposal_rows_max > 0 && engine.facts().pooling == plan::Pooling::kNone;
  if (can_propose && options.speculation.proposals_max > 0)
    speculator_ = std::make_unique<speculation::Speculator>(options.speculation, engine.facts().slots);
  drawn_.reserve(engine.facts().slots);
  if (options.step_seconds_max > 0 && !engine.facts().whole_sequences)
    pace_.emplace(options.step_seconds_max, engine.facts().rows_max);
}

Result<> ContinuousBatch::add(const SequenceRequest& request) {
  const EngineFacts& facts = engine_.facts();
  if (request.prompt.empty() || request.prompt.size() > request.tokens_max ||
      request.tokens_max > facts.context_tokens) {
    return base::fail(ErrorCode::kContextExhausted,
                      fmt::format("{} prompt tokens, {} at most in all; the context holds {}", request.prompt.size(),
                                  request.tokens_max, facts.context_tokens));
  }
  const auto outside = [&](TokenId token) { return !is_token(token, facts.vocab, facts.token_types); };
  if (std::ranges::any_of(request.prompt, outside)) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("a token id is outside the vocabulary of {}", facts.vocab));
  }
  if (request.images) TRY(engine_.check_images(request.images->grids, request.images->patch_rows));
  // Pages of long and short rotations differ for the same tokens.
  std::vector<std::byte> salt;
  if (!request.images && !options_.cache_salt.empty() && !engine_.facts().whole_sequences) {
    salt = options_.cache_salt;
    salt.push_back(engine_.rotates_long(request.tokens_max) ? std::byte{1} : std::byte{0});
  }
  scheduler_.add({.id = request.id,
                  .prompt = request.prompt,
                  .tokens_max = request.tokens_max,
                  .cache_salt = salt,
                  .wants_prompt = request.wants_prompt});
  if (request.images) images_.emplace(request.id, *request.images);
  return {};
}

void ContinuousBatch::remove(SequenceId id) {
  scheduler_.remove(id);
  images_.erase(id);
  if (speculator_) speculator_->remove(id);
}

void ContinuousBatch::fork(SequenceId parent, SequenceId child) {
  ASSERT(!images_.contains(parent), "a request with images has state that is not forked");
  scheduler_.fork(parent, child);
}

Result<bool> ContinuousBatch::step(std::int64_t now_ms, const LogitsSink& sink, const DrawSinks& draws,
                                   const PromptSink& prompt_sink) {
  in_step_.clear();
  size_cache();
  if (pace_) scheduler_.limit_rows(pace_->rows());
  const double began = pace_ ? options_.seconds() : 0;
  const Result<StepOutput> output = run(scheduler_.plan(now_ms), draws);
  if (pace_ && output) {
    std::size_t rows = 0;
    for (const SlotRows& request : rows_) rows += request.tokens.size();
    pace_->ran(static_cast<std::uint32_t>(rows), options_.seconds() - began);
  }
  if (!output) {
    scheduler_.failed();
    return base::fail(output.error());
  }
  // done() ends the plan's life: who gets which logits is kept in rows_ and in_step_.
  scheduler_.done();
  hand_out(*output, {.logits = sink, .draws = draws, .prompt = prompt_sink});
  return !rows_.empty();
}

// The rows of a request from `row` on: of tokens of a prompt, in order, and in the end of its last one.
void ContinuousBatch::hand_out_prompt(std::size_t request, const StepOutput& output, std::size_t row,
                                      const Sinks& sinks) {
  const SequenceId id = in_step_[request];
  const auto rows = static_cast<std::uint32_t>(rows_[request].tokens.size());
  const std::uint32_t begin = engine_.length(rows_[request].slot) - rows;
  for (std::uint32_t r = 0; r < rows && scheduler_.knows(id); ++r) {
    if (r + 1 == rows && scheduler_.awaits_token(id)) return sinks.logits(id, output.row(row + r));
    sinks.prompt(id, begin + r, output.row(row + r));
  }
}

void ContinuousBatch::hand_out(const StepOutput& output, const Sinks& sinks) {
  std::size_t next = 0, next_drawn = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const SequenceId id = in_step_[i];
    const std::size_t row = next;
    next += rows_[i].outputs();
    if (rows_[i].wanted == RowsWanted::kAll) {
      hand_out_prompt(i, output, row, sinks);
      continue;
    }
    if (rows_[i].wanted != RowsWanted::kLast || !scheduler_.knows(id)) {
      next_drawn += drawn_[i];
      continue;
    }
    if (drawn_[i]) {
      sinks.draws.drawn(id, output.drawn[next_drawn++]);
      continue;
    }
    // A proposal that was drawn has its logits already.
    const std::size_t known = scheduler_.tokens(id).size();
    const auto drew = [&](std::size_t proposals) {
      return scheduler_.awaits_token(id) && scheduler_.tokens(id).size() == known + proposals;
    };
    for (std::size_t g = 0; g < rows_[i].outputs() && drew(g); ++g) sinks.logits(id, output.row(row + g));
    if (rows_[i].proposals > 0 && scheduler_.knows(id)) engine_.rewind(rows_[i].slot, scheduler_.settle(id));
  }
}

// Before anybody waits or is preempted for want of pages the cache grows, as far as it may; when nobody is there any more it
// gives back what came by growing.
void ContinuousBatch::size_cache() {
  if (scheduler_.waiting_count() + scheduler_.running_count() == 0) {
    if (engine_.kv().release_idle() > 0) may_grow_ = true;
    return;
  }
  if (!may_grow_) return;
  const paging::Growth growth{.tokens = engine_.facts().context_tokens, .rows_max = engine_.facts().rows_max};
  const paging::PageTables& pages = engine_.pages();
  for (std::uint32_t group = 0; group < pages.groups_count(); ++group) {
    if (pages.counts(group).takeable() >= pages.group(group).pages_at_once(growth)) continue;
    may_grow_ = engine_.kv().make_room(growth);
    return;
  }
}

// What the plan left over goes to proposals of the tokens behind those it computes.
void ContinuousBatch::propose(const scheduling::StepPlan& plan) {
  if (!speculator_) return;
  speculation::StepShape shape{.proposals_max = engine_.facts().proposal_rows_max};
  speculator_->begin();
  for (const scheduling::PlannedRows& rows : plan.rows) {
    shape.rows += static_cast<std::uint32_t>(rows.tokens.size());
    if (!rows.wants_logits || rows.wants_all) continue;
    ++shape.tokens;
    speculator_->offer(rows.id, rows.slot, scheduler_.tokens(rows.id), scheduler_.tokens_max(rows.id));
  }
  shape.proposals_max = std::min(shape.proposals_max, engine_.facts().rows_max - shape.rows);
  speculator_->choose(shape, [&](SequenceId id, std::span<const TokenId> tokens) { scheduler_.propose(id, tokens); });
}

Result<> ContinuousBatch::start(const scheduling::SlotStart& start, SequenceId id) {
  TRY(engine_.start(start.slot, {.tokens_max = start.tokens_max, .held = start.held}));
  const auto images = images_.find(id);
  if (images != images_.end()) TRY(engine_.encode_images(start.slot, images->second.grids, images->second.patch_rows));
  return {};
}

Result<StepOutput> ContinuousBatch::run(const scheduling::StepPlan& plan, const DrawSinks& draws) {
  rows_.clear();
  for (const scheduling::PlannedRows& rows : plan.rows) in_step_.push_back(rows.id);
  for (const scheduling::SlotFork& fork : plan.forks)
    TRY(engine_.fork({.from = fork.from, .to = fork.to, .tokens_max = fork.tokens_max}));
  engine_.kv().copy(plan.page_copies);
  for (const scheduling::SlotStart& begun : plan.starts) {
    const SequenceId id = std::ranges::find(plan.rows, begun.slot, &scheduling::PlannedRows::slot)->id;
    if (Result<> started = start(begun, id); !started) {
      in_step_.assign(1, id);  // nobody else's error
      return base::fail(started.error());
    }
  }
  propose(plan);  // once slots are whose the plan says
  for (const scheduling::PlannedRows& rows : plan.rows) {
    rows_.push_back({.slot = rows.slot,
                     .tokens = rows.tokens,
                     .wanted = rows.wants_all      ? RowsWanted::kAll
                               : rows.wants_logits ? RowsWanted::kLast
                                                   : RowsWanted::kNone,
                     .proposals = rows.proposals});
  }
  drawn_.assign(rows_.size(), false);
  if (rows_.empty()) return StepOutput{.logits = {}, .width = engine_.facts().output_width};
  const auto draw = [&](std::size_t request) {
    const plan::RowDraw* wanted = draws.draw(in_step_[request]);
    drawn_[request] = wanted != nullptr;
    return wanted;
  };
  StepHooks hooks;
  if (draws.draw) hooks = {.draw = draw, .meanwhile = draws.meanwhile};
  Result<StepOutput> output = engine_.step(rows_, hooks);
  if (speculator_) {
    std::uint32_t rows = 0;
    for (const SlotRows& request : rows_) rows += static_cast<std::uint32_t>(request.tokens.size());
    speculator_->step_ended(rows);
  }
  return output;
}

BatchUsage ContinuousBatch::usage() const {
  BatchUsage usage{
      .counts = scheduler_.counts(), .running = scheduler_.running_count(), .waiting = scheduler_.waiting_count()};
  const paging::PageTables& pages = engine_.pages();
  for (std::uint32_t group = 0; group < pages.groups_count(); ++group) {
    const paging::PageCounts counts = pages.counts(group);
    usage.pages_total += counts.total;
    usage.pages_used += counts.used;
    usage.pages_cached += counts.cached;
  }
  for (const std::uint64_t bytes : engine_.memory_used_bytes()) usage.memory_bytes += bytes;
  return usage;
}

}  // namespace llorch::engine::inference
