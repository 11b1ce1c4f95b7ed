#include "worker/engine_loop.h"

#include <algorithm>
#include <chrono>

#include "base/assert.h"
#include "base/log.h"

namespace llorch::worker {

using base::ErrorCode;
using engine::inference::BatchUsage;
using engine::inference::SequenceId;

namespace {

// How often an idle loop looks for cached pages whose time is over.
constexpr std::int64_t kIdleWaitMs = 30'000;
// A job may wait for its deadline or a slow reader; nothing else needs the clock.
constexpr std::int64_t kJobWaitMs = 50;

}  // namespace

struct EngineLoop::Job {
  Job(Sequence s, std::shared_ptr<JobSink> k) : sequence(std::move(s)), sink(std::move(k)) {}

  Sequence sequence;
  std::shared_ptr<JobSink> sink;
  std::atomic<bool> cancelled{false};
  std::int64_t accepted_ms = 0;
  std::int64_t deadline_ms = 0;
  std::int64_t first_token_ms = -1;  // mono time of the first token; -1 before it
};

EngineLoop::EngineLoop(engine::inference::Engine& engine, const EngineLoopOptions& options,
                       const text::Tokenizer& tokenizer, Identity identity, const base::Clock& clock)
    : engine_(engine),
      tokenizer_(tokenizer),
      identity_(std::move(identity)),
      clock_(clock),
      slots_total_(engine.facts().slots),
      residency_check_ms_(options.residency_check_ms),
      on_residency_lost_(options.on_residency_lost),
      meters_(options.meters),
      may_step_(options.may_step),
      measures_(options.meters.size()),
      batch_(engine, options.batch),
      next_residency_check_ms_(clock.now().mono_ms + residency_check_ms_) {
  usage_ = batch_.usage();
  thread_ = std::thread([this] { run(); });
}

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

bool EngineLoop::cancel(const base::JobId& job_id, const std::optional<std::string>& execution_id) {
  const std::lock_guard lock(mutex_);
  for (const auto& job : known_) {
    const SequenceSpec& spec = job->sequence.spec();
    if (spec.job_id != job_id || spec.execution_id != execution_id) continue;
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

std::vector<engine::plan::StepMeasures> EngineLoop::measures() const {
  const std::lock_guard lock(mutex_);
  return measures_;
}

BatchUsage EngineLoop::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void EngineLoop::clear_cache() {
  const std::lock_guard lock(mutex_);
  clear_cache_ = woken_ = true;
  changed_.notify_all();
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
    wait_for_work();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ && known_.empty()) return;
    }
    do {
      take_in_new_jobs();
      check_residency();
      end_overdue_jobs();
    } while (step());
  }
}

void EngineLoop::wait_for_work() {
  const std::int64_t idle_ms = std::min(kIdleWaitMs, residency_check_ms_);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(known_.empty() ? idle_ms : kJobWaitMs),
                    [&] { return woken_ || (stopping_ && known_.empty()); });
  woken_ = false;
}

void EngineLoop::take_in_new_jobs() {
  std::vector<std::shared_ptr<Job>> incoming;
  {
    const std::lock_guard lock(mutex_);
    incoming.swap(incoming_);
    if (std::exchange(clear_cache_, false)) batch_.clear_cache();
  }
  for (auto& job : incoming) {
    const SequenceId id{next_sequence_++};
    const SequenceSpec& spec = job->sequence.spec();
    engine::inference::SequenceRequest request{
        .id = id, .prompt = spec.prompt, .tokens_max = job->sequence.tokens_max()};
    if (spec.images) request.images = {.grids = spec.images->grids, .patch_rows = spec.images->patch_rows};
    const auto added = batch_.add(request);
    running_.emplace(id, std::move(job));
    if (!added) fail(id, added.error());
  }
}

// A worker whose memory moved away does not go on: it would be slow at best, and what it holds of others' prompts lies where
// nobody looks after it. Its jobs are told that their worker is lost, so that they are run again elsewhere.
void EngineLoop::check_residency() {
  const std::int64_t now = clock_.now().mono_ms;
  if (!resident_.load() || now < next_residency_check_ms_) return;
  next_residency_check_ms_ = now + residency_check_ms_;
  const auto checked = engine_.check_residency();
  if (checked) return;
  base::log_event(base::LogLevel::kError, "vram_residency_lost", {},
                  "Memory of the model is no longer in the device; the worker leaves.",
                  {{"code", checked.error().name()}, {"message", checked.error().message}});
  healthy_.store(false);
  resident_.store(false);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  take_in_new_jobs();
  say_taken();
  while (!running_.empty()) {
    fail(running_.begin()->first,
         base::Error{ErrorCode::kWorkerReset, "the worker leaves: memory of its model left the device", {}});
  }
  if (on_residency_lost_) on_residency_lost_();
}

void EngineLoop::end_overdue_jobs() {
  const std::int64_t now = clock_.now().mono_ms;
  const auto is_over = [&](const auto& entry) {
    return entry.second->cancelled.load() || now >= entry.second->deadline_ms;
  };
  if (std::ranges::any_of(running_, is_over)) say_taken();
  for (auto next = running_.begin(); next != running_.end();) {
    const auto& [id, job] = *next++;  // fail() takes the entry away
    if (job->cancelled.load()) {
      fail(id, base::Error{ErrorCode::kCancelled, "the job was cancelled", {}});
    } else if (now >= job->deadline_ms) {
      fail(id, base::Error{ErrorCode::kTimeout, "the job's time on this worker ran out", {}}
                   .with("stage", "execution")
                   .with("execution_time_ms", now - job->accepted_ms)
                   .with("timeout_ms", job->deadline_ms - job->accepted_ms));
    } else {
      batch_.set_paused(id, job->sink->congested());
    }
  }
}

bool EngineLoop::step() {
  if (may_step_ && !running_.empty() && !may_step_()) {
    say_taken();
    return false;
  }
  engine::inference::DrawSinks draws;
  if (engine_.draws()) {
    draws.draw = [&](SequenceId id) { return running_.at(id)->sequence.device_draw(engine::inference::kDrawEditsMax); };
    draws.drawn = [&](SequenceId id, const engine::plan::RowDrawn& drawn) { accept_drawn(id, drawn); };
    draws.meanwhile = [&] { say_taken(); };
  }
  const auto ran = batch_.step(
      clock_.now().mono_ms, [&](SequenceId id, std::span<const float> logits) { accept_logits(id, logits); }, draws);
  if (!ran) {
    base::log_event(base::LogLevel::kError, "error", {}, "A step of the engine failed.",
                    {{"code", ran.error().name()},
                     {"message", ran.error().message},
                     {"jobs", static_cast<std::int64_t>(batch_.last_step().size())}});
    if (ran.error().code == ErrorCode::kCudaError) healthy_.store(false);
    say_taken();
    for (const SequenceId id : batch_.last_step())
      if (running_.contains(id)) fail(id, ran.error());
  }
  if (!ran.value_or(true)) say_taken();  // no step to do it in
  const std::lock_guard lock(mutex_);
  usage_ = batch_.usage();
  for (std::size_t i = 0; i < meters_.size(); ++i) measures_[i] = meters_[i]->measures();
  return ran.value_or(true);
}

void EngineLoop::accept_logits(SequenceId id, std::span<const float> logits) {
  const std::shared_ptr<Job> job = running_.at(id);
  if (job->cancelled.load()) return;  // ends before the next step
  const auto token = job->sequence.accept(logits);
  if (!token) return fail(id, token.error());
  hand_out(id, *job, *token);
  if (!token->finished) batch_.append(id, token->token);
}

void EngineLoop::accept_drawn(SequenceId id, const engine::plan::RowDrawn& drawn) {
  const std::shared_ptr<Job> job = running_.at(id);
  if (job->cancelled.load()) return;
  const auto token = job->sequence.take(drawn);
  if (!token) return fail(id, token.error());
  if (job->sequence.ends()) return say(id, job);
  batch_.append(id, *token);
  taken_.push_back(id);
}

void EngineLoop::say_taken() {
  for (const SequenceId id : taken_)
    if (const auto job = running_.find(id); job != running_.end()) say(id, std::shared_ptr<Job>(job->second));
  taken_.clear();
}

void EngineLoop::say(SequenceId id, const std::shared_ptr<Job>& job) { hand_out(id, *job, job->sequence.say()); }

void EngineLoop::hand_out(SequenceId id, Job& job, const TokenOut& token) {
  if (job.first_token_ms < 0) job.first_token_ms = clock_.now().mono_ms;
  job.sink->token(token);
  if (token.finished) finish(id, *token.finished);
}

void EngineLoop::finish(SequenceId id, wire::StopReason reason) {
  const std::shared_ptr<Job> job = release(id, &JobCounts::succeeded);
  const Sequence& s = job->sequence;
  const std::int64_t now = clock_.now().mono_ms;
  wire::EndEvent end{.job_id = s.spec().job_id.value,
                     .tokens_in = static_cast<std::int64_t>(s.spec().prompt.size()),
                     .tokens_out = s.tokens_out(),
                     .decode_time_ms = now - job->first_token_ms,
                     .first_token_ms = job->first_token_ms - job->accepted_ms,
                     .stop_reason = reason,
                     .receipt = wire::Receipt{.model_digest = identity_.model_digest,
                                              .engine_build = identity_.engine_build,
                                              .numerics = identity_.numerics,
                                              .device_class = identity_.device_class,
                                              .sampler = std::string(engine::sampling::kSamplerVersion),
                                              .kv_dtype = identity_.kv_dtype,
                                              .seed = s.spec().sampling.seed,
                                              .prompt_sha256 = s.spec().prompt_sha256,
                                              .output_sha256 = s.output_sha256(),
                                              .tokens_out = s.tokens_out(),
                                              .parameters_sha256 = s.spec().parameters_sha256}};
  job->sink->end(std::move(end));
}

void EngineLoop::fail(SequenceId id, base::Error error) {
  if (error.code == ErrorCode::kOutOfDeviceMemory) error.code = ErrorCode::kVramOom;
  const auto outcome = error.code == ErrorCode::kCancelled ? &JobCounts::cancelled
                       : error.code == ErrorCode::kTimeout ? &JobCounts::timed_out
                                                           : &JobCounts::failed;
  release(id, outcome)->sink->error(error);
}

// The slot is free before the job's last event leaves, so whoever reads that event finds a free slot.
std::shared_ptr<EngineLoop::Job> EngineLoop::release(SequenceId id, std::int64_t JobCounts::*outcome) {
  batch_.remove(id);
  std::shared_ptr<Job> job = std::move(running_.extract(id).mapped());
  const std::lock_guard lock(mutex_);
  known_.erase(std::find(known_.begin(), known_.end(), job));
  usage_ = batch_.usage();
  ++(counts_.*outcome);
  counts_.tokens_out += job->sequence.tokens_out();
  counts_.busy_ms += clock_.now().mono_ms - job->accepted_ms;
  changed_.notify_all();
  return job;
}

}  // namespace llorch::worker
