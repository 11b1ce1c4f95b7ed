#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;

namespace {
// Until a job was measured, each job ahead is guessed to take so long. Below, the bounds of "try again after".
constexpr std::int64_t kGuessPerJobMs = 100;
constexpr std::int64_t kRetryAfterMinMs = 1000;
constexpr std::int64_t kRetryAfterMaxMs = 60000;
// Nobody knows how the disk is until somebody writes: an older failure says nothing of now.
constexpr std::int64_t kStoreFailureHoldsMs = 30000;
}  // namespace

std::int64_t Core::State::context_tokens(const wire::ModelFacts& facts) const {
  return config.worker_context_tokens ? std::min(facts.context_length, *config.worker_context_tokens)
                                      : facts.context_length;
}

std::optional<Error> Core::State::context_error(const jobs::JobSpec& spec) const {
  const std::int64_t context = context_tokens(spec.model), needed = spec.tokens_in + spec.max_tokens;
  if (context <= 0 || needed <= context) return std::nullopt;
  return Error{
      ErrorCode::kInvalidParams,
      fmt::format("The prompt has {} tokens and max_tokens is {}; together they exceed the context of {} tokens. "
                  "Shorten the prompt or lower max_tokens.",
                  spec.tokens_in, spec.max_tokens, context),
      {}}
      .with("reason", "CONTEXT_TOO_LARGE")
      .with("tokens_in", spec.tokens_in)
      .with("max_tokens", spec.max_tokens)
      .with("context_tokens", context);
}

std::optional<Error> Core::State::memory_error(const jobs::JobSpec& spec) const {
  if (pools_expected() || !registry.workers_of(spec.model.digest).empty()) return std::nullopt;
  // By the size of the devices: what they have left now is for the queue to wait for.
  std::int64_t places = 0, devices = 0, total_max = 0;
  for (const auto& [id, pool] : registry.pools()) {
    devices += std::ssize(pool.devices);
    for (const auto& place : pools::places_for(pool, spec.model.devices, spec.placement.require_device_mask)) {
      if (placement::tier_of(spec.placement, id, place.mask) == placement::Tier::kExcluded) continue;
      ++places;
      total_max = std::max(total_max, place.total_bytes());
    }
  }
  if (places == 0 && devices > 0 && spec.model.devices > 1) return too_few_devices(spec.model);
  if (places == 0 || total_max >= spec.model.memory_bytes) return std::nullopt;
  return too_large(spec, total_max);
}

Error Core::State::too_large(const jobs::JobSpec& spec, std::int64_t potential_max) const {
  const std::string_view where = placement::is_anywhere(spec.placement) ? "" : " that the placement accepts";
  const std::string numbers = spec.model.devices == 1
                                  ? fmt::format("{} bytes of device memory; the largest device{} can give {}",
                                                spec.model.memory_bytes, where, potential_max)
                                  : fmt::format("{} bytes of each of {} devices; the best ones{} can give {} each",
                                                spec.model.memory_bytes, spec.model.devices, where, potential_max);
  return Error{
      ErrorCode::kPoolUnavailable,
      fmt::format("A worker for this model needs {}. Use a smaller model or quantization, a smaller context, or "
                  "add a device.",
                  numbers),
      {}}
      .with("required_bytes", spec.model.memory_bytes)
      .with("available_bytes", potential_max);
}

Error Core::State::too_few_devices(const wire::ModelFacts& facts) {
  return Error{ErrorCode::kPoolUnavailable,
               fmt::format("models.tensor_split shares this model among {} devices, and no pool has so many. Share it "
                           "among fewer, or add devices.",
                           facts.devices),
               {}}
      .with("devices", facts.devices);
}

bool Core::State::store_failing() const {
  return store_failed_ms && now.mono_ms - *store_failed_ms < kStoreFailureHoldsMs;
}

std::int64_t Core::State::queue_retry_ms() const {
  return std::clamp(run_ms.get().value_or(kRetryAfterMinMs), kRetryAfterMinMs, kRetryAfterMaxMs);
}

// Where work begins the caller's part of refusal() is asked of copies; told when one of them is out of date.
void Core::State::publish_standing(const std::string& tenant_id) {
  sessions::Standing standing{throttle.standing(tenant_id), quotas.standing(tenant_id)};
  if (standing.throttle || standing.quota) emit(PublishStanding{tenant_id, std::move(standing)});
}

void Core::State::publish_queue_room() {
  const std::array refuses{queue.refuses(Priority{0}), queue.refuses(Priority{1})};
  const bool full = refuses[0] || refuses[1];
  if (!full && !room_told) return;
  const auto numbers = full ? std::optional(std::pair(queue.depth(), queue_retry_ms())) : std::nullopt;
  if (numbers == room_told && refuses == refuses_told) return;
  room_told = numbers;
  refuses_told = refuses;
  emit(PublishQueueRoom{refuses, full ? std::optional(queue_full_error()) : std::nullopt});
}

Error Core::State::queue_full_error() const {
  const std::int64_t retry_ms = queue_retry_ms();
  const bool displaces = config.queue.policy == config::QueuePolicy::kDropLru ||
                         config.queue.policy == config::QueuePolicy::kShedLowPriority;
  const std::string_view kept = displaces ? ", and none of them gives way to this one" : "";
  return Error{
      ErrorCode::kQueueFull,
      fmt::format("The queue holds {} jobs, its limit{}. Try again in {} ms, or raise orchestratord.queue.capacity.",
                  queue.depth(), kept, retry_ms),
      {}}
      .with("policy_label", std::string(queue::policy_label(config.queue.policy)))
      .with("retry_after_ms", retry_ms)
      .with("queue_depth", queue.depth())
      .with("queue_capacity", queue.capacity());
}

// Everything that can be refused before a place in the queue is taken.
std::optional<Error> Core::State::refusal(const Submit& e, ModelIndex model_index) {
  const jobs::JobSpec& spec = e.job;
  if (draining) return stopping_error();
  if (auto error = throttle.arrives(spec.tenant_id, tokens_most(spec), now.mono_ms)) return error;
  if (auto error = context_error(spec)) return error;
  if (spec.session_id) {
    if (auto error = sessions.refusal(*spec.session_id, demand(spec), now)) return error;
  }
  if (auto error = quotas.refusal(spec.tenant_id, tokens_most(spec), now.unix_ms)) return error;
  if (auto error = placement_error(spec)) return error;
  if (auto error = memory_error(spec)) return error;
  return deadline_error(spec, model_index);
}

Error Core::State::stopping_error() {
  return Error{ErrorCode::kShuttingDown, "orchestratord is stopping. Try again when it is back.", {}}.with(
      "retry_after_ms", kRetryAfterMinMs);
}

Error Core::State::store_error(std::string_view consequence) {
  return Error{ErrorCode::kStoreUnavailable,
               fmt::format("The job store cannot write now, so {}. Free disk space or repair the state directory, then "
                           "try again.",
                           consequence),
               {}}
      .with("retry_after_ms", kRetryAfterMinMs);
}

std::optional<Error> Core::State::deadline_error(const jobs::JobSpec& spec, ModelIndex model_index) {
  if (!spec.deadline_ms) return std::nullopt;
  Job probe;
  probe.spec.placement = spec.placement;
  probe.model = model_index;
  probe.arrival = Arrival{arrivals + 1};
  const std::int64_t start_ms = predicted_start(probe).value_or(0);
  if (*spec.deadline_ms > 0 && start_ms < *spec.deadline_ms) return std::nullopt;
  return Error{ErrorCode::kDeadlineUnmet,
               fmt::format("The job would start in about {} ms, after its deadline of {} ms. Give it more time.",
                           start_ms, *spec.deadline_ms),
               {}}
      .with("predicted_start_ms", start_ms)
      .with("deadline_ms", *spec.deadline_ms);
}

void Core::State::refuse(const Submit& e, Error error) {
  const std::string_view code = base::info(error.code).name;
  count(Metric::kEnqueued, "rejected", 1, e.job.priority);
  count(Metric::kRejected, code);
  if (const auto left_out = refusal_lines.admit(now.mono_ms)) {
    emit(Log{
        base::LogLevel::kInfo,
        "admission.rejected",
        e.job.correlation_id,
        "Refuses a job.",
        {{"job_id", e.job.job_id}, {"code", code}, {"queue_depth", queue.depth()}, {"left_out_before", *left_out}}});
  }
  emit(AnswerSubmit{e.request, e.job.job_id, base::fail(std::move(error))});
}

Job& Core::State::add_job(jobs::JobSpec spec, GroupIndex group_index) {
  const Arrival arrival{++arrivals};
  const bool is_new = arrival_of.emplace(spec.job_id, arrival).second;
  ASSERT(is_new, "job {} was submitted twice", spec.job_id.value);
  Job& job = jobs.emplace_hint(jobs.end(), arrival, Job{})->second;
  job.spec = std::move(spec);
  job.arrival = arrival;
  job.group = group_index;
  job.model = group(group_index).model;
  ++group(group_index).jobs;
  job.submitted_ms = job.queued_ms = now.mono_ms;
  job.submitted_unix_ms = now.unix_ms;
  return job;
}

void Core::State::on(Submit& e) {
  const ModelIndex model_index = intern(e.job.model);
  auto error = refusal(e, model_index);
  publish_standing(e.job.tenant_id);  // it arrived, whatever becomes of it
  if (error) return refuse(e, std::move(*error));
  const GroupIndex group_index = intern_group(model_index, e.job, {});
  const queue::Verdict verdict = queue.reserve(
      {.arrival = {arrivals + 1}, .group = group_index, .priority = e.job.priority, .queued_ms = now.mono_ms});
  if (!verdict.accepted) {
    if (group(group_index).jobs == 0) emptied_groups.push_back(group_index);
    return refuse(e, queue_full_error());
  }
  Job& job = add_job(std::move(e.job), group_index);
  job.submit_request = e.request;
  throttle.accepted(job.spec.tenant_id, tokens_most(job.spec), now.mono_ms);
  quotas.reserve(job.spec.tenant_id, tokens_most(job.spec));
  publish_standing(job.spec.tenant_id);
  CommitAdmission commit{.commit = next_commit(PendingCommit::Kind::kAdmission, job.arrival),
                         .job_id = job.spec.job_id,
                         .submitted_unix_ms = now.unix_ms,
                         .session = {}};
  if (job.spec.session_id) {
    job.session = sessions.admit(*job.spec.session_id, demand(job.spec), now, entropy);
    commit.session = sessions.find(job.session->key)->record;
  }
  emit(std::move(commit));
  if (!verdict.displaced) return;
  const auto label = queue::policy_label(config.queue.policy);
  count(Metric::kQueueDropped, label);
  const bool lru = config.queue.policy == config::QueuePolicy::kDropLru;
  Job& victim = jobs.at(*verdict.displaced);
  log(base::LogLevel::kWarn, "queue.dropped", &victim, "Drops a waiting job from a full queue.", {{"policy", label}});
  fail(victim, Error{lru ? ErrorCode::kQueueFullDropLru : ErrorCode::kQueueFull,
                     "The queue was full and this job made room for a newer one. Submit it again.",
                     {}}
                   .with("policy_label", std::string(label))
                   .with("queue_capacity", queue.capacity()));
}

void Core::State::arm_job_timers(Job& job) {
  if (job.spec.deadline_ms) {
    job.deadline_timer = timers.arm(job.submitted_ms + *job.spec.deadline_ms,
                                    {.kind = TimerKind::kJobDeadline, .number = job.arrival.value});
  }
  if (config.timeout.queue_ms > 0) {
    job.queue_timer = timers.arm(job.queued_ms + config.timeout.queue_ms,
                                 {.kind = TimerKind::kJobQueue, .number = job.arrival.value});
  }
}

void Core::State::admitted(Job& job) {
  job.admitted = true;
  queue.make_ready(job.arrival);
  const std::int64_t position = queue.position(job.arrival);
  const std::int64_t start_ms = predicted_start(job).value_or(position * kGuessPerJobMs);
  count(Metric::kEnqueued, "accepted", 1, job.spec.priority);
  count(Metric::kTokensIn, {}, job.spec.tokens_in);
  log(base::LogLevel::kDebug, "admission.accepted", &job, "Accepts a job.",
      {{"queue_position", position}, {"predicted_start_ms", start_ms}, {"tokens_in", job.spec.tokens_in}});
  job.queue_position = position;
  job.predicted_start_ms = start_ms;
  Admission admission{.queue_position = position, .predicted_start_ms = start_ms, .budget = {}};
  if (const auto* session = job.session ? sessions.find(job.session->key) : nullptr) {
    admission.budget = sessions.remaining(*session);
  }
  emit(AnswerSubmit{job.submit_request, job.spec.job_id, std::move(admission)});
  emit(PublishQueued{job.spec.job_id, position, start_ms});
  arm_job_timers(job);
  // A group that waits is looked at again when what it waits for changes, not for every newcomer.
  if (!group(job.group).wait) {
    touched.push_back(job.group);
  } else if (const auto head = queue.head_of(job.group); head && head->second == job.arrival) {
    led_anew.push_back(job.group);
  }
  if (job.cancel_when_admitted) cancel(job, *job.cancel_when_admitted);
}

void Core::State::admission_failed(Job& job, const Error& error) {
  queue.remove(job.arrival);
  dirty = true;
  if (job.session) sessions.withdraw(*job.session);
  quotas.withdraw(job.spec.tenant_id, tokens_most(job.spec));
  publish_standing(job.spec.tenant_id);
  count(Metric::kEnqueued, "rejected", 1, job.spec.priority);
  count(Metric::kRejected, base::info(ErrorCode::kStoreUnavailable).name);
  if (const auto left_out = refusal_lines.admit(now.mono_ms)) {
    log(base::LogLevel::kError, "admission.rejected", &job, "Cannot store a job and refuses it.",
        {{"code", error.name()}, {"left_out_before", *left_out}});
  }
  emit(AnswerSubmit{job.submit_request, job.spec.job_id, base::fail(store_error("the job was not accepted"))});
  for (const RequestId request : job.cancel_requests) emit(AnswerCancel{request, job.spec.job_id, std::nullopt});
  forget(job);
}

void Core::State::on(Committed& e) {
  store_failed_ms.reset();
  for (const CommitId id : e.commits) {
    const auto it = commits.find(id);
    if (orders_committed(id, nullptr) || it == commits.end()) continue;  // or said twice
    const PendingCommit commit = it->second;
    commits.erase(it);
    if (commit.kind == PendingCommit::Kind::kProgress) continue;
    --commits_awaited;
    if (commit.kind == PendingCommit::Kind::kSession) {
      session_committed(commit.session);
      continue;
    }
    Job& job = jobs.at(commit.job);
    commit.kind == PendingCommit::Kind::kAdmission ? admitted(job) : ending_committed(job);
  }
}

void Core::State::on(CommitFailed& e) {
  if (e.error.code == ErrorCode::kStoreUnavailable) store_failed_ms = now.mono_ms;
  for (const CommitId id : e.commits) {
    const auto it = commits.find(id);
    if (orders_committed(id, &e.error) || it == commits.end()) continue;
    const PendingCommit commit = it->second;
    commits.erase(it);
    // A row that still says "queued" while the job runs is harmless: after a restart both are replayed.
    if (commit.kind == PendingCommit::Kind::kProgress) continue;
    --commits_awaited;
    if (commit.kind == PendingCommit::Kind::kSession) {
      session_commit_failed(commit.session);
      continue;
    }
    Job& job = jobs.at(commit.job);
    if (commit.kind == PendingCommit::Kind::kAdmission) {
      admission_failed(job, e.error);
    } else {
      log(base::LogLevel::kError, "store.retry", &job, "Cannot store how a job ended and tries again.",
          {{"code", e.error.name()}});
      timers.arm(now.mono_ms + config.store_retry_ms, {.kind = TimerKind::kStoreRetry, .number = job.arrival.value});
    }
  }
}

void Core::State::on(Restored& e) {
  restored = true;
  const std::int64_t grace_until_ms = now.mono_ms + config.pool_offline_grace_ms;
  for (const std::string& endpoint : config.pool_endpoints) expect_endpoint(endpoint, grace_until_ms);
  for (const std::string& endpoint : e.pool_endpoints) expect_endpoint(endpoint, grace_until_ms);
  for (const std::int64_t key : sessions.restore(std::move(e.sessions), now)) emit(ForgetSession{key});
  quotas.restore(e.tenants, now.unix_ms);
  restore_orders(e.pool_orders);
  for (const sessions::TenantUse& use : e.tenants) publish_standing(use.tenant_id);
  for (jobs::RestoredJob& job : e.jobs) restore(job);
  std::int64_t position = 0;
  for (const Priority priority : {Priority::kInteractive, Priority::kBatch}) {
    for (const Arrival arrival : queue.snapshot(priority)) {
      Job& job = jobs.at(arrival);
      job.queue_position = position;
      job.predicted_start_ms = position * kGuessPerJobMs;
      emit(PublishQueued{job.spec.job_id, job.queue_position, job.predicted_start_ms});
      ++position;
    }
  }
  dirty = true;
}

void Core::State::restore(jobs::RestoredJob& r) {
  ASSERT(!wire::is_terminal(r.status), "job {} has ended", r.spec.job_id.value);
  const GroupIndex group_index = intern_group(intern(r.spec.model), r.spec, r.worker_version);
  const std::int64_t not_before_ms =
      jobs.empty() ? std::numeric_limits<std::int64_t>::min() : jobs.rbegin()->second.submitted_ms;
  Job& job = add_job(std::move(r.spec), group_index);
  job.admitted = true;
  job.attempts = r.attempts;
  job.worker_version = std::move(r.worker_version);
  quotas.reserve(job.spec.tenant_id, tokens_most(job.spec));
  publish_standing(job.spec.tenant_id);
  job.submitted_unix_ms = r.submitted_unix_ms;
  // Times are told by a wall clock that may have been set meanwhile; arrivals are not, and no job is older than the one
  // before it: the queue promotes by age in order of arrival.
  job.submitted_ms =
      std::max(now.mono_ms - std::max<std::int64_t>(0, now.unix_ms - r.submitted_unix_ms), not_before_ms);
  if (r.session_key) job.session = sessions.readmit(*r.session_key, demand(job.spec));
  const bool was_running = r.status != JobStatus::kQueued;
  job.resumes_attempt = was_running && r.attempts > 0;
  queue.put_back({.arrival = job.arrival,
                  .group = group_index,
                  .priority = job.spec.priority,
                  .queued_ms = job.submitted_ms,
                  .displaceable = !was_running},
                 now.mono_ms, now.mono_ms);
  arm_job_timers(job);
  auto error = context_error(job.spec);
  if (!r.payload_available) {
    error = {ErrorCode::kPayloadLost, "The prompt was not kept across the restart. Submit the job again.", {}};
  } else if (was_running && config.restart.running_jobs == config::RunningJobs::kFail) {
    error = {
        ErrorCode::kWorkerReset, "orchestratord restarted while the job ran, and restart.running_jobs is fail.", {}};
  }
  if (error) {
    emit(PublishQueued{job.spec.job_id, 0, 0});  // its stream has the same first event as every other
    fail(job, std::move(*error));
  } else if (was_running) {
    commit_progress(job);
  }
}

}  // namespace llorch::orchestratord::core
