#pragma once
// The thread that owns the engine: takes jobs in, runs one batched step after another, hands tokens out.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/speculation/draft_model.h"
#include "engine/inference/speculation/model_predictor.h"
#include "engine/plan/step_meter.h"
#include "wire/task.h"
#include "worker/embedding/embedding_job.h"
#include "worker/sequence.h"

namespace llorch::worker {

// Receives one job's events on the loop's thread: token*, those of the prompt first, or vector*, then exactly one of end and
// error. Must not block.
class JobSink {
 public:
  virtual ~JobSink() = default;
  virtual void token(const TokenOut& token) = 0;
  virtual void vector(const embedding::VectorOut& vector) = 0;
  virtual void end(wire::EndEvent end) = 0;
  virtual void error(const base::Error& error) = 0;
  // True while the reader is too slow: the loop computes nothing for the job until EngineLoop::wake().
  virtual bool congested() = 0;
};

// The fields that are the same in every receipt of this worker.
struct Identity {
  std::string model_digest;
  std::string engine_build;
  std::string numerics;
  std::string device_class;
  std::string kv_dtype;
  std::string speculation;  // "ngram", "draft", "mtp"; empty: none
};

struct JobCounts {
  std::int64_t succeeded = 0;
  std::int64_t failed = 0;
  std::int64_t cancelled = 0;
  std::int64_t timed_out = 0;
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;
  std::int64_t busy_ms = 0;
};

struct EngineLoopOptions {
  engine::inference::ContinuousBatchOptions batch{};  // but for the source of proposals, which is made of `draft`
  // Writes ahead of the jobs (speculation::DraftModel::check()); null: nobody does. It outlives the loop, whose thread alone
  // touches it.
  engine::inference::Engine* draft = nullptr;
  std::int64_t residency_check_ms = 60'000;  // between looks at where the model and its caches lie
  // Called once, on the loop's thread, when the model or a cache has left the device's memory: every job has been
  // failed and no new one is taken. Whoever owns the process ends it.
  std::function<void()> on_residency_lost{};
  std::vector<const engine::plan::StepMeter*> meters{};  // of the engine's devices; they outlive the loop
  // Asked on the loop's thread before every step while a job runs; false: the step waits, and it is asked again. Jobs are
  // taken in and ended meanwhile. Empty: no step waits.
  std::function<bool()> may_step{};
};

// What a job is; embeddings are for an engine of embeddings, sequences for all others.
using JobSpec = std::variant<SequenceSpec, embedding::EmbeddingSpec>;

class EngineLoop {
  struct Job;
  using JobPtr = std::shared_ptr<Job>;

 public:
  // Names one run of a job; outlives it harmlessly.
  class Run {
    friend class EngineLoop;
    std::weak_ptr<Job> job_;
  };

  // The engine, tokenizer and clock outlive the loop. The thread starts at once.
  EngineLoop(engine::inference::Engine& engine, const EngineLoopOptions& options, const text::Tokenizer& tokenizer,
             Identity identity, const base::Clock& clock);
  ~EngineLoop();  // stop(0)
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Thread-safe, all of them.
  // WORKER_BUSY: no free slot, or an earlier run of this job has not ended here yet. SHUTTING_DOWN. `on_accepted` runs on
  // this thread before the sink can be called.
  base::Result<Run> start(JobSpec spec, std::shared_ptr<JobSink> sink, std::int64_t timeout_ms,
                          const std::function<void()>& on_accepted);
  // Ends the run of the job that came with this execution_id before its next step with CANCELLED. False when no such run
  // is here: another run of the same job is left alone.
  bool cancel(const base::JobId& job_id, const std::optional<std::string>& execution_id);
  // The same for exactly this run, which may be over.
  void cancel(const Run& run);
  void wake();
  // Forgets what the cache holds of prompts that ended, before the next step.
  void clear_cache();
  std::int64_t slots_total() const { return slots_total_; }
  std::int64_t slots_free() const;
  JobCounts counts() const;
  engine::inference::BatchUsage usage() const;               // as of the last step
  std::vector<engine::plan::StepMeasures> measures() const;  // by meter, as of the last step
  // False after the engine failed in a way that later jobs would share.
  bool healthy() const { return healthy_.load(); }
  // Whether all the engine holds lay in its device's memory when it was last looked at.
  bool resident() const { return resident_.load(); }

  // Takes no more jobs, lets running ones end for up to `grace_ms`, cancels the rest, joins the thread.
  void stop(std::int64_t grace_ms);

 private:
  void run();
  void wait_for_work();
  void take_in_new_jobs();
  base::Result<> add_sequence(const JobPtr& job);
  base::Result<> add_inputs(const JobPtr& job);
  void check_residency();
  void end_overdue_jobs();
  bool step();  // false when there was nothing to run
  void accept_logits(engine::inference::SequenceId id, std::span<const float> logits);
  void accept_prompt_logits(engine::inference::SequenceId id, std::uint32_t position, std::span<const float> logits);
  // Where the device draws: the token is settled at once, so that the next step can begin; its text waits until that runs.
  void accept_drawn(engine::inference::SequenceId id, const engine::plan::RowDrawn& drawn);
  void say_taken();
  void accept_row(engine::inference::SequenceId id, const JobPtr& job, std::span<const float> row);
  void say(const JobPtr& job);
  void hand_out(const JobPtr& job, const TokenOut& token);
  void note_first_output(Job& job);
  void finish(const JobPtr& job, wire::StopReason reason);
  template <class Work>
  wire::EndEvent end_of(const Job& job, const Work& work, wire::StopReason reason) const;
  std::optional<wire::SpeculationCounts> speculation_of(const Job& job) const;
  void fail(const JobPtr& job, base::Error error);
  engine::inference::ContinuousBatchOptions batch_options(const EngineLoopOptions& options);
  // Takes the job out of the batch and of everything that knows it.
  void release(const JobPtr& job, std::int64_t JobCounts::*outcome);

  engine::inference::Engine& engine_;
  const text::Tokenizer& tokenizer_;
  const Identity identity_;
  const base::Clock& clock_;
  const std::int64_t slots_total_;
  const std::int64_t residency_check_ms_;
  const std::function<void()> on_residency_lost_;
  const std::vector<const engine::plan::StepMeter*> meters_;
  const std::function<bool()> may_step_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<JobPtr> incoming_;                      // guarded by mutex_
  bool stopping_ = false;                             // guarded by mutex_
  bool woken_ = false;                                // guarded by mutex_
  bool clear_cache_ = false;                          // guarded by mutex_
  std::vector<JobPtr> known_;                         // guarded by mutex_: every job not yet ended
  JobCounts counts_;                                  // guarded by mutex_
  engine::inference::BatchUsage usage_;               // guarded by mutex_
  std::vector<engine::plan::StepMeasures> measures_;  // guarded by mutex_
  std::atomic<bool> healthy_{true};
  std::atomic<bool> resident_{true};

  // Loop thread only.
  std::unique_ptr<engine::inference::speculation::ProposalSource> source_;  // null: lookup, or nothing
  engine::inference::ContinuousBatch batch_;
  std::map<engine::inference::SequenceId, JobPtr> running_;  // an embedding job once for each input that is not done
  std::vector<engine::inference::SequenceId> taken_;         // whose last token has no text yet
  std::uint64_t next_sequence_ = 0;
  std::int64_t next_residency_check_ms_;
  std::thread thread_;
};

}  // namespace llorch::worker
