#include "worker/engine_loop.h"

#include <algorithm>
#include <chrono>

#include "base/assert.h"
#include "base/log.h"

namespace llorch::worker {

using base::ErrorCode;
using engine::inference::RowsWanted;
using engine::inference::SlotRows;

struct EngineLoop::Job {
  Job(Sequence s, std::shared_ptr<JobSink> k) : sequence(std::move(s)), sink(std::move(k)) {}

  Sequence sequence;
  std::shared_ptr<JobSink> sink;
  std::atomic<bool> cancelled{false};
  std::int64_t accepted_ms = 0;
  std::int64_t deadline_ms = 0;
  std::int64_t first_token_ms = -1;  // mono time of the first token; -1 before it
};

EngineLoop::EngineLoop(engine::inference::Engine& engine, const engine::text::Tokenizer& tokenizer, Identity identity,
                       const base::Clock& clock)
    : engine_(engine),
      tokenizer_(tokenizer),
      identity_(std::move(identity)),
      clock_(clock),
      slots_total_(engine.facts().slots),
      slots_(static_cast<std::size_t>(slots_total_)),
      thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() { stop(0); }

base::Result<EngineLoop::Run> EngineLoop::start(SequenceSpec spec, std::shared_ptr<JobSink> sink,
                                                std::int64_t timeout_ms, const std::function<void()>& on_accepted) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return base::fail(ErrorCode::kShuttingDown, "this worker is stopping and takes no new job");
  for (const auto& job : known_) {
    if (job->sequence.spec().job_id == spec.job_id) {
      return base::fail(ErrorCode::kWorkerBusy, "an earlier run of this job is still ending here; try again");
    }
  }
  if (static_cast<std::int64_t>(known_.size()) >= slots_total_) {
    return base::fail(
        base::Error{ErrorCode::kWorkerBusy, "every slot of this worker runs a job; try again when one ends", {}}.with(
            "slots_total", slots_total_));
  }
  counts_.tokens_in += static_cast<std::int64_t>(spec.prompt.size());
  auto job =
      std::make_shared<Job>(Sequence(std::move(spec), tokenizer_, engine_.facts().context_tokens), std::move(sink));
  job->accepted_ms = clock_.now().mono_ms;
  job->deadline_ms = job->accepted_ms + timeout_ms;
  on_accepted();
  Run run;
  run.job_ = job;
  known_.push_back(job);
  incoming_.push_back(std::move(job));
  woken_ = true;
  changed_.notify_all();
  return run;
}

bool EngineLoop::cancel(const base::JobId& job_id) {
  const std::lock_guard lock(mutex_);
  for (const auto& job : known_) {
    if (job->sequence.spec().job_id != job_id) continue;
    job->cancelled.store(true);
    woken_ = true;
    changed_.notify_all();
    return true;
  }
  return false;
}

void EngineLoop::cancel(const Run& run) {
  const auto job = run.job_.lock();
  if (job == nullptr) return;
  job->cancelled.store(true);
  wake();
}

void EngineLoop::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

std::int64_t EngineLoop::slots_free() const {
  const std::lock_guard lock(mutex_);
  return slots_total_ - static_cast<std::int64_t>(known_.size());
}

JobCounts EngineLoop::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void EngineLoop::stop(std::int64_t grace_ms) {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::milliseconds(grace_ms), [&] { return known_.empty(); });
    for (const auto& job : known_) job->cancelled.store(true);
    woken_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      // A job may only wait for its deadline (or a slow reader); nothing else needs the clock.
      changed_.wait_for(lock, std::chrono::milliseconds(known_.empty() ? 60'000 : 50),
                        [&] { return woken_ || (stopping_ && known_.empty()); });
      woken_ = false;
      if (stopping_ && known_.empty()) return;
    }
    do {
      take_in_new_jobs();
      end_overdue_jobs();
    } while (step());
  }
}

void EngineLoop::take_in_new_jobs() {
  std::vector<std::shared_ptr<Job>> incoming;
  {
    const std::lock_guard lock(mutex_);
    incoming.swap(incoming_);
  }
  for (auto& job : incoming) {
    const auto free = std::find(slots_.begin(), slots_.end(), nullptr);
    ASSERT(free != slots_.end());
    const SequenceSpec& spec = job->sequence.spec();
    const auto tokens_max = std::min<std::int64_t>(static_cast<std::int64_t>(spec.prompt.size()) + spec.max_tokens,
                                                   engine_.facts().context_tokens);
    const auto reset =
        engine_.reset(static_cast<std::uint32_t>(free - slots_.begin()), static_cast<std::uint32_t>(tokens_max));
    *free = std::move(job);
    if (!reset) fail(*free, reset.error());
  }
}

void EngineLoop::end_overdue_jobs() {
  const std::int64_t now = clock_.now().mono_ms;
  for (const auto& job : slots_) {
    if (job == nullptr) continue;
    if (job->cancelled.load()) {
      fail(job, base::Error{ErrorCode::kCancelled, "the job was cancelled", {}});
    } else if (now >= job->deadline_ms) {
      fail(job, base::Error{ErrorCode::kTimeout, "the job's time on this worker ran out", {}}
                    .with("stage", "execution")
                    .with("execution_time_ms", now - job->accepted_ms)
                    .with("timeout_ms", job->deadline_ms - job->accepted_ms));
    }
  }
}

// One ragged batch: every sequence that decodes gives one row, then prompts share what is left of the row budget.
bool EngineLoop::step() {
  batch_.clear();
  std::size_t rows_left = engine_.facts().rows_max;
  const auto add = [&](std::size_t slot, bool decoding) {
    Job* job = slots_[slot].get();
    if (job == nullptr || rows_left == 0) return;
    const auto pending = job->sequence.pending();
    if ((pending.size() == 1) != decoding || job->sink->congested()) return;
    const std::size_t rows = std::min(pending.size(), rows_left);
    batch_.push_back({.slot = static_cast<std::uint32_t>(slot),
                      .tokens = pending.first(rows),
                      .wanted = rows == pending.size() ? RowsWanted::kLast : RowsWanted::kNone});
    rows_left -= rows;
  };
  for (const bool decoding : {true, false}) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) add(slot, decoding);
  }
  if (batch_.empty()) return false;
  std::sort(batch_.begin(), batch_.end(), [](const SlotRows& a, const SlotRows& b) { return a.slot < b.slot; });

  const auto output = engine_.step(batch_);
  if (!output) {
    base::log_event(base::LogLevel::kError, "error", {}, "A step of the engine failed.",
                    {{"code", output.error().name()}});
    if (output.error().code == ErrorCode::kCudaError) healthy_.store(false);
    for (const SlotRows& rows : batch_) fail(slots_[rows.slot], output.error());
    return true;
  }
  std::size_t row = 0;
  for (const SlotRows& rows : batch_) {
    const auto job = slots_[rows.slot];
    job->sequence.consumed(rows.tokens.size());
    if (rows.wanted == RowsWanted::kNone) continue;
    const std::span<const float> logits = output->row(row++);
    if (!job->cancelled.load()) accept_logits(job, logits);
  }
  return true;
}

void EngineLoop::accept_logits(const std::shared_ptr<Job>& job, std::span<const float> logits) {
  const auto token = job->sequence.accept(logits);
  if (!token) return fail(job, token.error());
  if (job->first_token_ms < 0) job->first_token_ms = clock_.now().mono_ms;
  job->sink->token(*token);
  if (token->finished) finish(job, *token->finished);
}

void EngineLoop::finish(std::shared_ptr<Job> job, contract::StopReason reason) {
  const Sequence& s = job->sequence;
  const std::int64_t now = clock_.now().mono_ms;
  contract::EndEvent end{.job_id = s.spec().job_id.value,
                         .tokens_in = static_cast<std::int64_t>(s.spec().prompt.size()),
                         .tokens_out = s.tokens_out(),
                         .decode_time_ms = now - job->first_token_ms,
                         .first_token_ms = job->first_token_ms - job->accepted_ms,
                         .stop_reason = reason,
                         .receipt = contract::Receipt{.model_digest = identity_.model_digest,
                                                      .engine_build = identity_.engine_build,
                                                      .numerics = identity_.numerics,
                                                      .device_class = identity_.device_class,
                                                      .sampler = std::string(engine::sampling::kSamplerVersion),
                                                      .kv_dtype = identity_.kv_dtype,
                                                      .seed = s.spec().sampling.seed,
                                                      .prompt_sha256 = s.spec().prompt_sha256,
                                                      .output_sha256 = s.output_sha256(),
                                                      .tokens_out = s.tokens_out()}};
  release(job, &JobCounts::succeeded);
  job->sink->end(std::move(end));
}

void EngineLoop::fail(std::shared_ptr<Job> job, base::Error error) {
  if (error.code == ErrorCode::kOutOfDeviceMemory) error.code = ErrorCode::kVramOom;
  const auto outcome = error.code == ErrorCode::kCancelled ? &JobCounts::cancelled
                       : error.code == ErrorCode::kTimeout ? &JobCounts::timed_out
                                                           : &JobCounts::failed;
  release(job, outcome);
  job->sink->error(error);
}

// The slot is free before the job's last event leaves, so whoever reads that event finds a free slot.
void EngineLoop::release(std::shared_ptr<Job> job, std::int64_t JobCounts::*outcome) {
  *std::find(slots_.begin(), slots_.end(), job) = nullptr;
  const std::lock_guard lock(mutex_);
  known_.erase(std::find(known_.begin(), known_.end(), job));
  ++(counts_.*outcome);
  counts_.tokens_out += job->sequence.tokens_out();
  counts_.busy_ms += clock_.now().mono_ms - job->accepted_ms;
  changed_.notify_all();
}

}  // namespace llorch::worker
