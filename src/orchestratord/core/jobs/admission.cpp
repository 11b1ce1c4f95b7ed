#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using wire::PlacementMode;

namespace {
// Until a job was measured, each job ahead is guessed to take so long. Below, the bounds of "try again after".
constexpr std::int64_t kGuessPerJobMs = 100;
constexpr std::int64_t kRetryAfterMinMs = 1000;
constexpr std::int64_t kRetryAfterMaxMs = 60000;

// A deadline that has passed by the wall clock, which somebody may have set forward, has to have passed by the settled one too.
std::int64_t deadline_age_ms(const jobs::RestoredJob& r, std::int64_t age_ms, std::int64_t settled_unix_ms) {
  if (!r.spec.deadline_ms || age_ms < *r.spec.deadline_ms) return age_ms;
  return std::clamp<std::int64_t>(settled_unix_ms - r.submitted_unix_ms, 0, age_ms);
}
}  // namespace

std::int64_t Admissions::context_tokens(const wire::ModelFacts& facts) const {
  return jobs::context_tokens(facts, config_.worker_context_tokens);
}

std::optional<Error> Admissions::context_error(const jobs::JobSpec& spec) const {
  const std::int64_t context = context_tokens(spec.model), needed = spec.tokens_in + spec.max_tokens;
  // Inputs of an embedding or rerank job are sequences of their own; whoever tokenised them has checked each.
  // Of a model that takes text tokens_in is a bound: its engine counts, and refuses what is too long.
  const bool counted = spec.model.writes() && spec.model.takes == wire::PromptForm::kTokens;
  if (context <= 0 || needed <= context || !counted) return std::nullopt;
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

std::optional<Error> Admissions::memory_error(const jobs::JobSpec& spec) const {
  if (s_.pools.pools_expected() || !registry_.workers_of(spec.model.digest).empty()) return std::nullopt;
  // By the size of the devices: what they have left now is for the queue to wait for.
  std::int64_t places = 0, devices = 0, total_max = 0;
  for (const auto& [id, pool] : registry_.pools()) {
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

// A wish that no pool can meet is refused at once: nothing falls back silently. An accepted job whose pool goes away later
// waits for it.
std::optional<Error> Admissions::placement_error(const jobs::JobSpec& spec) const {
  if (placement::is_anywhere(spec.placement)) return std::nullopt;
  bool known = false, healthy = false;
  for (const auto& [id, pool] : registry_.pools()) {
    for (const auto& place : pools::places_for(pool, spec.model.devices, spec.placement.require_device_mask)) {
      if (placement::tier_of(spec.placement, id, place.mask) == placement::Tier::kExcluded) continue;
      known = true;
      healthy |= pool.status == wire::PoolStatus::kHealthy && place.is_healthy();
    }
  }
  if (healthy) return std::nullopt;
  const bool pinned = spec.placement.mode == PlacementMode::kPin;
  const std::string_view reason = pinned                                          ? "pinned_pool_infeasible"
                                  : spec.placement.mode == PlacementMode::kPrefer ? "no_preferred_feasible"
                                                                                  : "no_pool_feasible";
  if (known || s_.pools.pools_expected() || registry_.pools().empty()) {
    return Error{ErrorCode::kPoolUnready,
                 "No pool that the placement accepts answers now. Try again, or accept other pools.",
                 {}}
        .with("reason", std::string(reason))
        .with("retry_after_ms", kRetryAfterMinMs);
  }
  return Error{ErrorCode::kInvalidParams,
               pinned ? "No pool has the id of placement.pin_pool_id and the device asked for; `llorch ls` and GET "
                        "/v2/pools list what there is."
                      : "No registered pool and device meet the placement; `llorch ls` and GET /v2/pools list what "
                        "there is.",
               {}}
      .with("field", pinned ? "placement.pin_pool_id" : "placement")
      .with("reason", std::string(reason));
}

Error too_large(const jobs::JobSpec& spec, std::int64_t potential_max) {
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

Error too_few_devices(const wire::ModelFacts& facts) {
  return Error{ErrorCode::kPoolUnavailable,
               fmt::format("models.tensor_split shares this model among {} devices, and no pool has so many. Share it "
                           "among fewer, or add devices.",
                           facts.devices),
               {}}
      .with("devices", facts.devices);
}

std::int64_t Admissions::queue_retry_ms() const {
  return std::clamp(s_.attempts.run_ms().get().value_or(kRetryAfterMinMs), kRetryAfterMinMs, kRetryAfterMaxMs);
}

Admissions::Room Admissions::queue_room() const {
  Room room;
  if (!queue_.is_full()) return room;
  for (std::size_t tenant = 0; tenant < queue_.tenants_count(); ++tenant) {
    const std::array refuses{queue_.refuses(Priority{0}, tenant), queue_.refuses(Priority{1}, tenant)};
    if (refuses[0] || refuses[1]) room.refused.push_back({tenant, queue_.count_of_tenant(tenant), refuses});
  }
  if (room.refused.empty()) return room;
  room.depth = queue_.depth();
  room.retry_ms = queue_retry_ms();
  return room;
}

void Admissions::publish_queue_room() {
  Room room = queue_room();
  if (room == room_published_) return;
  PublishQueueRoom told;
  for (const auto& [tenant, count, refuses] : room.refused) {
    told.refusals.emplace(queue_.tenant_id(tenant), PublishQueueRoom::Refusal{refuses, queue_full_error(tenant)});
  }
  room_published_ = std::move(room);
  emit(std::move(told));
}

// Says whose limit it is: with tenants the caller's share, of which others learn nothing.
Error Admissions::queue_full_error(std::size_t tenant) const {
  const std::int64_t retry_ms = queue_retry_ms();
  const bool displaces = config_.queue.policy == config::QueuePolicy::kDropLru ||
                         config_.queue.policy == config::QueuePolicy::kShedLowPriority;
  const std::string_view kept = displaces ? ", and none of them gives way to this one" : "";
  const bool shared = queue_.tenants_count() > 1;
  const std::string limit =
      shared ? fmt::format("The queue is full, and {} of its jobs are the caller's, whose share of its {} places is {}",
                           queue_.count_of_tenant(tenant), queue_.capacity(), queue_.share())
             : fmt::format("The queue holds {} jobs, its limit", queue_.depth());
  Error error =
      Error{ErrorCode::kQueueFull,
            fmt::format("{}{}. Try again in {} ms, or raise orchestratord.queue.capacity.", limit, kept, retry_ms),
            {}}
          .with("policy_label", std::string(queue::policy_label(config_.queue.policy)))
          .with("retry_after_ms", retry_ms);
  error = with_queue(std::move(error));
  if (!shared) return error;
  return std::move(error).with("limit", queue_.share()).with("jobs_waiting", queue_.count_of_tenant(tenant));
}

// A breaker that closes by itself: it is open while, and only while, the wait of those before is too long.
std::optional<Error> Admissions::shed_error(GroupIndex group, wire::Priority priority) const {
  const std::int64_t limit_ms = config_.queue.shed_after_ms;
  if (limit_ms == 0) return std::nullopt;
  std::int64_t waited_ms = 0;
  for (const std::optional<Arrival>& first : queue_.oldest_of(group)) {
    if (first) waited_ms = std::max(waited_ms, now_.mono_ms - jobs_.at(*first).queued_ms);
  }
  const bool is_batch = priority == wire::Priority::kBatch;
  if (waited_ms < (is_batch ? limit_ms : 2 * limit_ms)) return std::nullopt;
  const std::int64_t retry_ms = queue_retry_ms();
  return with_queue(Error{
      ErrorCode::kQueueFull,
      fmt::format(
          "A job for the same model has waited for {} ms, and from {} ms on ({} for interactive jobs) new ones are "
          "refused (orchestratord.queue.shed_after_ms). Try again in {} ms.",
          waited_ms, limit_ms, 2 * limit_ms, retry_ms),
      {}}.with("policy_label", std::string("circuit-breaker"))
                        .with("retry_after_ms", retry_ms)
                        .with("waited_ms", waited_ms));
}

Error Admissions::with_queue(Error error) const {
  if (queue_.tenants_count() <= 1) error = std::move(error).with("queue_depth", queue_.depth());
  return std::move(error).with("queue_capacity", queue_.capacity());
}

// Everything that can be refused before a place in the queue is taken.
std::optional<Error> Admissions::refusal(const Submit& e, ModelIndex model_index) {
  if (env_.draining()) return stopping_error();
  if (auto error = ledger_.arrives(e)) return error;
  return lasting_refusal(e.job, model_index);
}

std::optional<Error> Admissions::lasting_refusal(const jobs::JobSpec& spec, ModelIndex model_index) {
  if (auto error = context_error(spec)) return error;
  if (auto error = ledger_.refusal(spec)) return error;
  if (auto error = placement_error(spec)) return error;
  if (auto error = memory_error(spec)) return error;
  return deadline_error(spec, model_index);
}

Error stopping_error() {
  return Error{ErrorCode::kShuttingDown, "orchestratord is stopping. Try again when it is back.", {}}.with(
      "retry_after_ms", kRetryAfterMinMs);
}

Error store_error(std::string_view consequence) {
  return Error{ErrorCode::kStoreUnavailable,
               fmt::format("The job store cannot write now, so {}. Free disk space or repair the state directory, then "
                           "try again.",
                           consequence),
               {}}
      .with("retry_after_ms", kRetryAfterMinMs);
}

std::optional<Error> Admissions::deadline_error(const jobs::JobSpec& spec, ModelIndex model_index) {
  if (!spec.deadline_ms) return std::nullopt;
  Job probe;
  probe.spec.placement = spec.placement;
  probe.model = model_index;
  probe.arrival = jobs_.next_arrival();
  const std::int64_t start_ms = s_.views.predicted_start(probe).value_or(0);
  if (*spec.deadline_ms > 0 && start_ms < *spec.deadline_ms) return std::nullopt;
  return Error{ErrorCode::kDeadlineUnmet,
               fmt::format("The job would start in about {} ms, after its deadline of {} ms. Give it more time.",
                           start_ms, *spec.deadline_ms),
               {}}
      .with("predicted_start_ms", start_ms)
      .with("deadline_ms", *spec.deadline_ms);
}

void Admissions::refuse(const Submit& e, Error error) {
  const std::string_view code = base::info(error.code).name;
  count(Metric::kEnqueued, "rejected", 1, e.job.priority);
  count(Metric::kRejected, code);
  if (const auto left_out = refusal_lines_.admit(now_.mono_ms)) {
    emit(Log{base::LogLevel::kInfo,
             "admission.rejected",
             e.job.correlation_id,
             "Refuses a job.",
             {{"job_id", e.job.job_id},
              {"tenant", sessions::tenant_of(e.job.tenant_id)},
              {"code", code},
              {"queue_depth", queue_.depth()},
              {"left_out_before", *left_out}}});
  }
  emit(AnswerSubmit{e.request, e.job.job_id, base::fail(std::move(error))});
}

void Admissions::on(Submit& e) {
  const ModelIndex model_index = models_.intern(e.job.model);
  auto error = refusal(e, model_index);
  ledger_.publish_standing(e.job.tenant_id);  // it arrived, whatever becomes of it
  if (error) return refuse(e, std::move(*error));
  const GroupIndex group_index = groups_.intern(model_index, e.job, {});
  if (auto overload = shed_error(group_index, e.job.priority)) {
    groups_.not_entered(group_index);
    return refuse(e, std::move(*overload));
  }
  const std::size_t tenant = queue_.tenant_number(e.job.tenant_id);
  const queue::Verdict verdict = queue_.reserve({.arrival = jobs_.next_arrival(),
                                                 .group = group_index,
                                                 .priority = e.job.priority,
                                                 .queued_ms = now_.mono_ms,
                                                 .tenant = tenant});
  if (!verdict.accepted) {
    groups_.not_entered(group_index);
    return refuse(e, queue_full_error(tenant));
  }
  Job& job = jobs_.add(std::move(e.job), now_);
  groups_.enter(job, group_index);
  job.submit_request = e.request;
  ledger_.reserve(job);
  CommitAdmission commit{.commit = commits_.add({.kind = PendingCommit::Kind::kAdmission, .job = job.arrival}),
                         .job_id = job.spec.job_id,
                         .submitted_unix_ms = now_.unix_ms,
                         .session = {}};
  if (const auto* session = ledger_.session_of(job)) commit.session = session->record;
  emit(std::move(commit));
  if (!verdict.displaced) return;
  const auto label = queue::policy_label(config_.queue.policy);
  count(Metric::kQueueDropped, label);
  const bool lru = config_.queue.policy == config::QueuePolicy::kDropLru;
  Job& victim = jobs_.at(*verdict.displaced);
  log_limited(base::LogLevel::kWarn, "queue.dropped", &victim, "Drops a waiting job from a full queue.",
              {{"policy", label}});
  s_.attempts.fail(victim, Error{lru ? ErrorCode::kQueueFullDropLru : ErrorCode::kQueueFull,
                                 "The queue was full and this job made room for a newer one. Submit it again.",
                                 {}}
                               .with("policy_label", std::string(label))
                               .with("queue_capacity", queue_.capacity()));
}

void Admissions::arm_job_timers(Job& job) {
  if (const auto due_ms = job.due_ms()) {
    job.deadline_timer = timers_.arm(*due_ms, {.kind = TimerKind::kJobDeadline, .number = job.arrival.value});
  }
  if (config_.timeout.queue_ms > 0) {
    job.queue_timer = timers_.arm(job.queued_ms + config_.timeout.queue_ms,
                                  {.kind = TimerKind::kJobQueue, .number = job.arrival.value});
  }
}

void Admissions::admitted(Job& job) {
  job.admitted = true;
  queue_.make_ready(job.arrival);
  const std::int64_t position = queue_.position(job.arrival);
  const std::int64_t start_ms = s_.views.predicted_start(job).value_or(position * kGuessPerJobMs);
  count(Metric::kEnqueued, "accepted", 1, job.spec.priority);
  count(Metric::kTokensIn, {}, job.spec.tokens_in);
  log(base::LogLevel::kDebug, "admission.accepted", &job, "Accepts a job.",
      {{"queue_position", position}, {"predicted_start_ms", start_ms}, {"tokens_in", job.spec.tokens_in}});
  job.queue_position = position;
  job.predicted_start_ms = start_ms;
  emit(AnswerSubmit{
      job.submit_request, job.spec.job_id,
      Admission{.queue_position = position, .predicted_start_ms = start_ms, .budget = ledger_.remaining(job)}});
  emit(PublishQueued{job.spec.job_id, position, start_ms});
  arm_job_timers(job);
  // A group that waits is looked at again when what it waits for changes, not for every newcomer.
  if (!group(job.group).wait) {
    recheck_.group(job.group);
  } else if (const auto head = queue_.head_of(job.group); head && head->second == job.arrival) {
    recheck_.at_next_pass(job.group);
  }
  if (job.cancel_when_admitted) s_.attempts.cancel(job, *job.cancel_when_admitted);
}

void Admissions::admission_failed(Job& job, const Error& error) {
  queue_.remove(job.arrival);
  recheck_.all();
  ledger_.withdraw(job);
  count(Metric::kEnqueued, "rejected", 1, job.spec.priority);
  count(Metric::kRejected, base::info(ErrorCode::kStoreUnavailable).name);
  if (const auto left_out = refusal_lines_.admit(now_.mono_ms)) {
    log(base::LogLevel::kError, "admission.rejected", &job, "Cannot store a job and refuses it.",
        {{"code", error.name()}, {"tenant", sessions::tenant_of(job.spec.tenant_id)}, {"left_out_before", *left_out}});
  }
  emit(AnswerSubmit{job.submit_request, job.spec.job_id, base::fail(store_error("the job was not accepted"))});
  for (const RequestId request : job.cancel_requests) emit(AnswerCancel{request, job.spec.job_id, std::nullopt});
  s_.attempts.forget(job);
}

void Admissions::restore(std::vector<jobs::RestoredJob>& restored, std::int64_t settled_unix_ms) {
  for (jobs::RestoredJob& job : restored) restore(job, settled_unix_ms);
  std::int64_t position = 0;
  for (const Priority priority : {Priority::kInteractive, Priority::kBatch}) {
    for (const Arrival arrival : queue_.snapshot(priority)) {
      Job& job = jobs_.at(arrival);
      job.queue_position = position;
      job.predicted_start_ms = position * kGuessPerJobMs;
      emit(PublishQueued{job.spec.job_id, job.queue_position, job.predicted_start_ms});
      ++position;
    }
  }
}

void Admissions::restore(jobs::RestoredJob& r, std::int64_t settled_unix_ms) {
  ASSERT(!wire::is_terminal(r.status), "job {} has ended", r.spec.job_id.value);
  const GroupIndex group_index = groups_.intern(models_.intern(r.spec.model), r.spec, r.worker_version);
  const std::int64_t age_ms = std::max<std::int64_t>(0, now_.unix_ms - r.submitted_unix_ms);
  const std::int64_t deadline_from_ms = now_.mono_ms - deadline_age_ms(r, age_ms, settled_unix_ms);
  const std::int64_t not_before_ms =
      jobs_.all().empty() ? std::numeric_limits<std::int64_t>::min() : jobs_.all().rbegin()->second.submitted_ms;
  Job& job = jobs_.add(std::move(r.spec), now_);
  groups_.enter(job, group_index);
  job.admitted = true;
  job.attempts = r.attempts;
  job.worker_version = std::move(r.worker_version);
  ledger_.reserve_again(job, r.session_key);
  job.submitted_unix_ms = r.submitted_unix_ms;
  // Times are told by a wall clock that may have been set meanwhile; arrivals are not, and no job is older than the one
  // before it: the queue promotes by age in order of arrival.
  job.submitted_ms = std::max(now_.mono_ms - age_ms, not_before_ms);
  job.deadline_from_ms = std::max(deadline_from_ms, job.submitted_ms);
  const bool was_running = r.status != JobStatus::kQueued;
  job.resumes_attempt = was_running && r.attempts > 0;
  groups_.put_back(job, now_.mono_ms, !was_running && r.attempts == 0);
  arm_job_timers(job);
  auto error = context_error(job.spec);
  if (!r.readable) {
    error = Error{
        ErrorCode::kPayloadLost,
        "This version of orchestratord cannot read the job back after its restart: what the store has of it "
        "is damaged, or another version wrote it. Submit the job again.",
        {}}.with("reason", std::string("JOB_UNREADABLE"));
  } else if (!r.payload_available) {
    error = {ErrorCode::kPayloadLost, "The prompt was not kept across the restart. Submit the job again.", {}};
  } else if (was_running && config_.restart.running_jobs == config::RunningJobs::kFail) {
    error = {
        ErrorCode::kWorkerReset, "orchestratord restarted while the job ran, and restart.running_jobs is fail.", {}};
  } else if (r.status == JobStatus::kRunning && !job.spec.model.replayable) {
    error = Attempts::not_replayable("orchestratord restarted while the job ran");
  }
  if (error) {
    emit(PublishQueued{job.spec.job_id, 0, 0});  // its stream has the same first event as every other
    s_.attempts.fail(job, std::move(*error));
  } else if (was_running) {
    s_.attempts.commit_progress(job);
  }
}

}  // namespace llorch::orchestratord::core
