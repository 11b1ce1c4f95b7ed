#include "worker/engine_loop.h"

#include <algorithm>
#include <chrono>

#include "base/assert.h"
#include "base/log.h"

namespace llorch::worker {

using base::ErrorCode;
using engine::inference::BatchUsage;
using engine::inference::ContinuousBatchOptions;
using engine::inference::SequenceId;

namespace {

// How often an idle loop looks for cached pages whose time is over.
constexpr std::int64_t kIdleWaitMs = 30'000;
// A job may wait for its deadline or a slow reader; nothing else needs the clock.
constexpr std::int64_t kJobWaitMs = 50;

}  // namespace

struct EngineLoop::Job {
  using Work = std::variant<Sequence, embedding::EmbeddingJob>;
  Job(Work w, std::shared_ptr<JobSink> k) : work(std::move(w)), sink(std::move(k)) {}

  Sequence& sequence() { return std::get<Sequence>(work); }
  // What both kinds of work have.
  template <class Reader>
  decltype(auto) with(const Reader& reader) const {
    return std::visit(reader, work);
  }
  const base::JobId& job_id() const {
    return with([](const auto& w) -> const base::JobId& { return w.spec().job_id; });
  }

  Work work;
  std::shared_ptr<JobSink> sink;
  SequenceId first_sequence{};  // its own; of an embedding job: its inputs' are the ones from here on
  std::optional<wire::SpeculationCounts> speculation{};  // once it has ended
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
      batch_(engine, batch_options(options)),
      next_residency_check_ms_(clock.now().mono_ms + residency_check_ms_) {
  usage_ = batch_.usage();
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() { stop(0); }

ContinuousBatchOptions EngineLoop::batch_options(const EngineLoopOptions& options) {
  ContinuousBatchOptions batch = options.batch;
  const auto draw = [this](SequenceId id, std::span<const base::TokenId> ahead, std::span<const float> logits) {
    return running_.at(id)->sequence().draft(ahead, logits);
  };
  if (options.draft != nullptr) {
    source_ = std::make_unique<engine::inference::speculation::DraftModel>(*options.draft, engine_.facts().vocab, draw);
  } else if (engine_.facts().predicts) {
    source_ = std::make_unique<engine::inference::speculation::ModelPredictor>(engine_, draw);
  }
  if (source_ != nullptr) batch.speculation.source = source_.get();
  return batch;
}

base::Result<EngineLoop::Run> EngineLoop::start(JobSpec spec, std::shared_ptr<JobSink> sink, std::int64_t timeout_ms,
                                                const std::function<void()>& on_accepted) {
  const auto [job_id, tokens_in] =
      std::visit([](const auto& s) { return std::pair(s.job_id, static_cast<std::int64_t>(s.prompt.size())); }, spec);
  const std::lock_guard lock(mutex_);
  if (stopping_) return base::fail(ErrorCode::kShuttingDown, "this worker is stopping and takes no new job");
  for (const auto& job : known_) {
    if (job->job_id() == job_id) {
      return base::fail(ErrorCode::kWorkerBusy, "an earlier run of this job is still ending here; try again");
    }
  }
  if (static_cast<std::int64_t>(known_.size()) >= slots_total_) {
    return base::fail(
        base::Error{ErrorCode::kWorkerBusy, "every slot of this worker runs a job; try again when one ends", {}}.with(
            "slots_total", slots_total_));
  }
  counts_.tokens_in += tokens_in;
  auto* const sequence = std::get_if<SequenceSpec>(&spec);
  if (sequence != nullptr) sequence->drafted = source_ != nullptr;
  auto job = std::make_shared<Job>(
      sequence != nullptr ? Job::Work(Sequence(std::move(*sequence), tokenizer_, engine_.facts().context_tokens))
                          : Job::Work(embedding::EmbeddingJob(std::move(std::get<embedding::EmbeddingSpec>(spec)))),
      std::move(sink));
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
    const bool named =
        job->with([&](const auto& w) { return w.spec().job_id == job_id && w.spec().execution_id == execution_id; });
    if (!named) continue;
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
  std::vector<JobPtr> incoming;
  {
    const std::lock_guard lock(mutex_);
    incoming.swap(incoming_);
    if (std::exchange(clear_cache_, false)) batch_.clear_cache();
  }
  for (const JobPtr& job : incoming) {
    const bool embeds = std::holds_alternative<embedding::EmbeddingJob>(job->work);
    const auto added = embeds ? add_inputs(job) : add_sequence(job);
    if (!added) fail(job, added.error());
  }
}

base::Result<> EngineLoop::add_sequence(const JobPtr& job) {
  const SequenceId id{next_sequence_++};
  running_.emplace(id, job);
  job->first_sequence = id;
  const SequenceSpec& spec = job->sequence().spec();
  engine::inference::SequenceRequest request{.id = id,
                                             .prompt = spec.prompt,
                                             .tokens_max = job->sequence().tokens_max(),
                                             .wants_prompt = spec.prompt_logprobs};
  if (spec.images) request.images = {.grids = spec.images->grids, .patch_rows = spec.images->patch_rows};
  TRY(batch_.add(request));
  if (spec.prompt_logprobs) job->sink->token(TRY(job->sequence().prompt_token(0, {})));
  return {};
}

base::Result<> EngineLoop::add_inputs(const JobPtr& job) {
  const embedding::EmbeddingSpec& spec = std::get<embedding::EmbeddingJob>(job->work).spec();
  job->first_sequence = SequenceId{next_sequence_};
  for (std::size_t i = 0; i < spec.inputs_count(); ++i) {
    const SequenceId id{next_sequence_++};
    running_.emplace(id, job);
    TRY(batch_.add(
        {.id = id, .prompt = spec.input(i), .tokens_max = static_cast<std::uint32_t>(spec.input(i).size())}));
  }
  return {};
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
    fail(JobPtr(running_.begin()->second),
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
    const auto [id, job] = *next;
    if (job->cancelled.load()) {
      fail(job, base::Error{ErrorCode::kCancelled, "the job was cancelled", {}});
    } else if (now >= job->deadline_ms) {
      fail(job, base::Error{ErrorCode::kTimeout, "the job's time on this worker ran out", {}}
                    .with("stage", "execution")
                    .with("execution_time_ms", now - job->accepted_ms)
                    .with("timeout_ms", job->deadline_ms - job->accepted_ms));
    } else {
      batch_.set_paused(id, job->sink->congested());
    }
    next = running_.upper_bound(id);  // fail() takes all entries of the job away
  }
}

bool EngineLoop::step() {
  if (may_step_ && !running_.empty() && !may_step_()) {
    say_taken();
    return false;
  }
  engine::inference::DrawSinks draws;
  if (engine_.facts().draws) {
    draws.draw = [&](SequenceId id) {
      return running_.at(id)->sequence().device_draw(engine::inference::kDrawEditsMax);
    };
    draws.drawn = [&](SequenceId id, const engine::plan::RowDrawn& drawn) { accept_drawn(id, drawn); };
    draws.meanwhile = [&] { say_taken(); };
  }
  const auto ran = batch_.step(
      clock_.now().mono_ms, [&](SequenceId id, std::span<const float> logits) { accept_logits(id, logits); }, draws,
      [&](SequenceId id, std::uint32_t position, std::span<const float> logits) {
        accept_prompt_logits(id, position, logits);
      });
  if (!ran) {
    base::log_event(base::LogLevel::kError, "error", {}, "A step of the engine failed.",
                    {{"code", ran.error().name()},
                     {"message", ran.error().message},
                     {"jobs", static_cast<std::int64_t>(batch_.last_step().size())}});
    if (ran.error().code == ErrorCode::kCudaError) healthy_.store(false);
    say_taken();
    for (const SequenceId id : batch_.last_step())
      if (const auto job = running_.find(id); job != running_.end()) fail(JobPtr(job->second), ran.error());
  }
  if (!ran.value_or(true) || engine_.facts().draws_at_once) say_taken();  // no step to do it in, or no gain
  const std::lock_guard lock(mutex_);
  usage_ = batch_.usage();
  for (std::size_t i = 0; i < meters_.size(); ++i) measures_[i] = meters_[i]->measures();
  return ran.value_or(true);
}

void EngineLoop::accept_logits(SequenceId id, std::span<const float> logits) {
  const JobPtr job = running_.at(id);
  if (job->cancelled.load()) return;  // ends before the next step
  if (std::holds_alternative<embedding::EmbeddingJob>(job->work)) return accept_row(id, job, logits);
  const auto token = job->sequence().accept(logits);
  if (!token) return fail(job, token.error());
  hand_out(job, *token);
  if (!token->finished) batch_.append(id, token->token);
}

void EngineLoop::accept_prompt_logits(SequenceId id, std::uint32_t position, std::span<const float> logits) {
  const JobPtr job = running_.at(id);
  if (job->cancelled.load()) return;
  const auto token = job->sequence().prompt_token(position + 1, logits);
  if (!token) return fail(job, token.error());
  job->sink->token(*token);
}

// An input is done with its row.
void EngineLoop::accept_row(SequenceId id, const JobPtr& job, std::span<const float> row) {
  auto& work = std::get<embedding::EmbeddingJob>(job->work);
  const auto input = static_cast<std::uint64_t>(id) - static_cast<std::uint64_t>(job->first_sequence);
  const auto ready = work.accept(input, row);
  if (!ready) return fail(job, ready.error());
  batch_.remove(id);
  running_.erase(id);
  for (const embedding::VectorOut& vector : *ready) {
    note_first_output(*job);
    job->sink->vector(vector);
  }
  if (work.finished()) finish(job, wire::StopReason::kEos);
}

void EngineLoop::accept_drawn(SequenceId id, const engine::plan::RowDrawn& drawn) {
  const JobPtr job = running_.at(id);
  if (job->cancelled.load()) return;
  const auto token = job->sequence().take(drawn);
  if (!token) return fail(job, token.error());
  if (job->sequence().ends()) return say(job);
  batch_.append(id, *token);
  taken_.push_back(id);
}

void EngineLoop::say_taken() {
  for (const SequenceId id : taken_)
    if (const auto job = running_.find(id); job != running_.end()) say(JobPtr(job->second));
  taken_.clear();
}

void EngineLoop::say(const JobPtr& job) { hand_out(job, job->sequence().say()); }

void EngineLoop::hand_out(const JobPtr& job, const TokenOut& token) {
  note_first_output(*job);
  job->sink->token(token);
  if (token.finished) finish(job, *token.finished);
}

void EngineLoop::note_first_output(Job& job) {
  if (job.first_token_ms < 0) job.first_token_ms = clock_.now().mono_ms;
}

void EngineLoop::finish(const JobPtr& job, wire::StopReason reason) {
  release(job, &JobCounts::succeeded);
  job->sink->end(job->with([&](const auto& work) { return end_of(*job, work, reason); }));
}

template <class Work>
wire::EndEvent EngineLoop::end_of(const Job& job, const Work& work, wire::StopReason reason) const {
  const auto& spec = work.spec();
  return {.job_id = spec.job_id.value,
          .tokens_in = static_cast<std::int64_t>(spec.prompt.size()),
          .tokens_out = work.tokens_out(),
          .decode_time_ms = clock_.now().mono_ms - job.first_token_ms,
          .first_token_ms = job.first_token_ms - job.accepted_ms,
          .stop_reason = reason,
          .receipt = wire::Receipt{.model_digest = identity_.model_digest,
                                   .engine_build = identity_.engine_build,
                                   .numerics = identity_.numerics,
                                   .device_class = identity_.device_class,
                                   .sampler = std::string(engine::sampling::kSamplerVersion),
                                   .kv_dtype = identity_.kv_dtype,
                                   .seed = work.seed(),
                                   .prompt_sha256 = spec.prompt_sha256,
                                   .output_sha256 = work.output_sha256(),
                                   .tokens_out = work.tokens_out(),
                                   .parameters_sha256 = spec.parameters_sha256,
                                   .speculation = identity_.speculation.empty() ? std::nullopt
                                                                                : std::optional(identity_.speculation)},
          .budget = {},
          .speculation = job.speculation};
}

std::optional<wire::SpeculationCounts> EngineLoop::speculation_of(const Job& job) const {
  if (!batch_.knows(job.first_sequence)) return {};
  const auto counts = batch_.proposals(job.first_sequence);
  if (counts.proposed == 0) return {};
  return wire::SpeculationCounts{.proposed = static_cast<std::int64_t>(counts.proposed),
                                 .accepted = static_cast<std::int64_t>(counts.accepted)};
}

void EngineLoop::fail(const JobPtr& job, base::Error error) {
  if (error.code == ErrorCode::kOutOfDeviceMemory) error.code = ErrorCode::kVramOom;
  const auto outcome = error.code == ErrorCode::kCancelled ? &JobCounts::cancelled
                       : error.code == ErrorCode::kTimeout ? &JobCounts::timed_out
                                                           : &JobCounts::failed;
  release(job, outcome);
  job->sink->error(error);
}

// The slot is free before the job's last event leaves, so whoever reads that event finds a free slot.
void EngineLoop::release(const JobPtr& job, std::int64_t JobCounts::*outcome) {
  job->speculation = speculation_of(*job);
  for (auto next = running_.begin(); next != running_.end();) {
    if (next->second != job) {
      ++next;
      continue;
    }
    batch_.remove(next->first);
    next = running_.erase(next);
  }
  const std::lock_guard lock(mutex_);
  known_.erase(std::find(known_.begin(), known_.end(), job));
  usage_ = batch_.usage();
  ++(counts_.*outcome);
  counts_.tokens_out += job->with([](const auto& work) { return work.tokens_out(); });
  counts_.busy_ms += clock_.now().mono_ms - job->accepted_ms;
  changed_.notify_all();
}

}  // namespace llorch::worker
