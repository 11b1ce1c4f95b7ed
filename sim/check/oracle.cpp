#include "sim/check/oracle.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "orchestratord/core/jobs/backoff.h"
#include "orchestratord/core/placement/preference.h"
#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::sim {

using base::ErrorCode;
using wire::JobStatus;

void Oracle::violate(const std::string& what) {
  if (violation_.empty()) violation_ = fmt::format("seed {} at {} ms: {}", options_.seed, loop_.now_ms(), what);
}

// ---- clients --------------------------------------------------------------------------------------------------------

void Oracle::asks(const JobRequest& request) { stories_[request.task_id].request = request; }

void Oracle::told_202(const std::string& job) {
  if (!stories_.at(job).accepted) violate("a client saw a 202 that nobody gave for " + job);
}

void Oracle::told_unknown(const std::string& job) {
  const Story& story = stories_.at(job);
  if (story.accepted && !story.retired) violate("an accepted job is not known any more: " + job);
}

void Oracle::told_status(const std::string& job, JobStatus status, std::int64_t tokens_out) {
  const Story& story = stories_.at(job);
  if (status == JobStatus::kCompleted && tokens_out != tokens_count(story.request)) {
    violate(fmt::format("{} completed with {} tokens instead of {}", job, tokens_out, tokens_count(story.request)));
  }
  if (!story.ending) return;
  const bool completed = story.ending->first == "end";
  if (completed != (status == JobStatus::kCompleted) || !wire::is_terminal(status)) {
    violate(fmt::format("{} ended with \"{}\" and is {} now", job, story.ending->first, wire::enum_name(status)));
  }
}

void Oracle::told_ending(const std::string& job, std::string_view event, std::string_view data) {
  Story& story = stories_.at(job);
  const std::pair seen{std::string(event), std::string(data)};
  if (story.ending && *story.ending != seen)
    violate(fmt::format("{} ended twice: {} and {}", job, story.ending->second, data));
  story.ending = seen;
}

// ---- orchestratord --------------------------------------------------------------------------------------------------

void Oracle::life_begins(const Disk& disk, base::Time now, std::int64_t settled_unix_ms) {
  ++lives_;
  sessions_.life_begins(disk);
  attempts_.clear();
  starts_.clear();
  workers_.clear();
  used_ms_.clear();
  known_.clear();
  out_of_reach_ms_.clear();
  reloading_.clear();
  leaving_.clear();
  drains_asked_ms_.clear();
  for (const auto& [pool, drain] : drained_) {
    const auto desired = disk.desired.find(pool);
    const bool there = desired != disk.desired.end() && desired->second.draining;
    if (!there && !undrain_asked_.contains(pool)) violate("a drain was forgotten: " + pool);
  }
  drained_.clear();
  for (const auto& [pool, desired] : disk.desired) {
    if (desired.draining) {
      drained_[pool] = {loop_.now_ms()};
      reached("restart with a drained pool");
    }
    if (desired.reload && desired.reload->state == wire::PoolOperationState::kRunning) {
      reloading_.insert(pool);
      reached("restart with a reload");
    }
    if (!desired.purged.empty()) reached("restart after a purge");
    purged_.insert(desired.purged.begin(), desired.purged.end());
  }
  for (auto& [job, story] : stories_) story.here = story.waits = story.decided = false;
  std::int64_t not_before_ms = std::numeric_limits<std::int64_t>::min();
  for (const std::string& job : disk.order) {
    const Row& row = disk.rows.at(job);
    Story& story = stories_.at(job);
    story.told = wire::is_terminal(row.status) ? row.status : JobStatus::kQueued;
    if (wire::is_terminal(row.status)) continue;
    story.here = true;
    story.waits = true;
    story.arrival = ++arrivals_;
    // A wall clock that was set meanwhile moves deadlines; never into the future, and never one job before the last. One that was
    // set forward alone ends none.
    std::int64_t age_ms = std::max<std::int64_t>(0, now.unix_ms - row.submitted_unix_ms);
    story.submitted_ms = not_before_ms = std::max(loop_.now_ms() - age_ms, not_before_ms);
    if (story.request.deadline_ms && age_ms >= *story.request.deadline_ms) {
      age_ms = std::min(age_ms, std::max<std::int64_t>(0, settled_unix_ms - row.submitted_unix_ms));
    }
    story.deadline_from_ms = std::max(loop_.now_ms() - age_ms, story.submitted_ms);
    story.queued_ms = loop_.now_ms();
  }
}

void Oracle::arrives(const std::string& job) {
  Story& story = stories_.at(job);
  story.arrival = ++arrivals_;
  story.submitted_ms = story.deadline_from_ms = story.queued_ms = loop_.now_ms();
  story.told = JobStatus::kQueued;
  story.decided = story.waits = false;
  story.here = true;
}

void Oracle::commanded(const core::Command& command, const Disk& disk) {
  sessions_.commanded(command, disk);
  restarts_.commanded(command);
  std::visit([&](const auto& c) { on(c, disk); }, command);
}

void Oracle::on(const core::AnswerSubmit& c, const Disk& disk) {
  const std::string& job = c.job_id.value;
  Story& story = stories_.at(job);
  if (!c.result) {
    if (story.accepted) violate("a 202 was taken back: " + job);
    if (disk.rows.contains(job)) violate("a refused job is on disk: " + job);
    story.here = false;
    if (c.result.error().code == ErrorCode::kQueueFull) check_queue_full(job);
    return reached(fmt::format("job refused: {}", c.result.error().name()));
  }
  story.waits = !story.decided;
  reached("job accepted");
}

// Nobody with fewer live jobs than its share of the places is refused one.
void Oracle::check_queue_full(const std::string& job) {
  const auto tenants = static_cast<std::int64_t>(options_.core.tenants.size());
  const std::int64_t share = std::max<std::int64_t>(1, options_.core.queue.capacity / (tenants + 1));
  const auto has = std::ranges::count_if(stories_, [&](const auto& other) {
    const bool lives = other.second.here && !wire::is_terminal(other.second.told);
    return lives && (tenants == 0 || caller(other.first) == caller(job));
  });
  if (has < share) violate("a full queue refused whoever has less than its share: " + job);
  if (tenants > 0) reached("tenant with its share of a full queue");
}

void Oracle::gives_202(const std::string& job, const Disk& disk) {
  if (!disk.rows.contains(job)) violate("a 202 for a job that is not on disk: " + job);
  stories_.at(job).accepted = true;
}

void Oracle::on(const core::CommitTransition& c, const Disk& disk) {
  const std::string& job = c.record.job_id.value;
  Story& story = stories_.at(job);
  const bool again = wire::is_terminal(story.told) && story.told == c.record.status;
  const bool restored = story.told == JobStatus::kQueued && c.record.status == JobStatus::kQueued;
  if (!again && !restored && !orchestratord::core::jobs::is_legal(story.told, c.record.status)) {
    violate(fmt::format("illegal transition of {}: {} -> {}", job, wire::enum_name(story.told),
                        wire::enum_name(c.record.status)));
  }
  // An ending may be written in the same commit as the admission, when the queue drops a job that is still on its way.
  if (!disk.rows.contains(job) && !wire::is_terminal(c.record.status))
    violate("a transition before its admission: " + job);
  if (again) reached("disk refused an ending, which was written again");
  if (!again && c.record.error) check_verdict(job, story, *c.record.error);
  story.told = c.record.status;
  if (wire::is_terminal(c.record.status)) {
    story.decided = true;
    story.waits = false;
  }
}

void Oracle::on(const core::Finish& c, const Disk& disk) {
  const std::string& job = c.job_id.value;
  const Story& story = stories_.at(job);
  const auto row = disk.rows.find(job);
  if (!story.retired && (row == disk.rows.end() || row->second.status != c.status))
    violate("an ending was told before it was on disk: " + job);
  if ((c.status == JobStatus::kCompleted) != c.end.has_value()) violate("completed without an end: " + job);
  check_reason(job, story, c);
  reached(c.error ? fmt::format("ended: {}", c.error->name()) : std::string("job completed"));
}

void Oracle::check_reason(const std::string& job, const Story& story, const core::Finish& c) {
  if (!c.error) return;
  const ErrorCode code = c.error->code;
  if ((c.status == JobStatus::kCancelled) != (code == ErrorCode::kCancelled))
    violate("status and code disagree: " + job);
  const bool explained = [&] {
    switch (code) {
      case ErrorCode::kCancelled: return story.may_be_cancelled;
      case ErrorCode::kReplayDiverged: return options_.faults.diverges > 0;
      case ErrorCode::kQueueFullDropLru: return options_.core.queue.policy == config::QueuePolicy::kDropLru;
      case ErrorCode::kQueueFull: return options_.core.queue.policy == config::QueuePolicy::kShedLowPriority;
      case ErrorCode::kPayloadLost:
      case ErrorCode::kInternal:
      case ErrorCode::kConflict:
      case ErrorCode::kInsufficientVram: return false;
      default: return true;
    }
  }();
  if (!explained)
    violate(fmt::format("{} ended with {} ({}) and nobody did that", job, c.error->name(), c.error->message));
}

// When it is decided, which may be long before the disk has it.
void Oracle::check_verdict(const std::string& job, const Story& story, const base::Error& error) {
  if (error.code == ErrorCode::kRetryExhausted && story.runs < options_.core.retry.max_attempts) {
    violate(fmt::format("{} is given up after {} runs", job, story.runs));
  }
  if (error.code != ErrorCode::kTimeout) return;
  for (const auto& [key, value] : error.details) {
    const auto* limit = std::get_if<std::string>(&value);
    if (key == "limit" && limit != nullptr && !ran_out(story, *limit)) {
      violate(fmt::format("{} ends by its {} limit before that has run out: {}", job, *limit, error.message));
    }
  }
}

bool Oracle::ran_out(const Story& story, std::string_view limit) const {
  const auto& limits = options_.core.timeout;
  const std::int64_t run_ms = loop_.now_ms() - story.begun_ms, age_ms = loop_.now_ms() - story.submitted_ms;
  if (limit == "wall") return run_ms >= std::min(story.request.timeout_ms.value_or(limits.default_ms), limits.max_ms);
  if (limit == "idle") return run_ms >= limits.idle_ms;
  if (limit == "queue") return age_ms >= limits.queue_ms;
  if (limit == "deadline") {
    const std::int64_t passed_ms = loop_.now_ms() - story.deadline_from_ms;
    return story.request.deadline_ms && passed_ms + kBoundSlackMs >= *story.request.deadline_ms;
  }
  return true;  // the session's: check/session_rules.h
}

void Oracle::cancel_settled(const std::string& job, const Disk& disk) {
  const auto row = disk.rows.find(job);
  if (row != disk.rows.end() && !wire::is_terminal(row->second.status))
    violate("a cancel is settled in words only: " + job);
}

// Simulated wishes name pools only.
bool Oracle::accepts(const Story& story, const base::PoolId& pool) {
  using orchestratord::core::placement::Tier;
  return orchestratord::core::placement::tier_of(story.request.placement, pool, "") != Tier::kExcluded;
}

std::pair<int, std::uint64_t> Oracle::rank(const Story& story) const {
  const bool promoted = loop_.now_ms() - story.submitted_ms >= options_.core.queue.batch_promotion_ms;
  const bool batch = story.request.priority == wire::Priority::kBatch && !promoted;
  return {batch ? 1 : 0, story.arrival};
}

void Oracle::check_order(const std::string& job, const Story& story, const base::PoolId& pool) {
  if (story.request.priority == wire::Priority::kBatch && rank(story).first == 0) reached("batch job promoted");
  const std::int64_t tenant_max = options_.core.quotas.max_concurrent_jobs;
  const auto at_its_limit = [&](const JobRequest& request) {
    const auto running = std::count_if(attempts_.begin(), attempts_.end(), [&](const auto& item) {
      return item.second.job != job && caller(item.second.job) == caller_of(request);
    });
    return tenant_max > 0 && running >= tenant_max;
  };
  for (const auto& [other_job, other] : stories_) {
    if (!other.waits || other.request.model != story.request.model || other_job == job) continue;
    if (!accepts(other, pool) || at_its_limit(other.request)) continue;
    // Of several builds each job may use those of the workers that its wishes, or its begun stream, leave to it.
    const bool same_workers = other.request.placement == story.request.placement && other.runs == 0 && story.runs == 1;
    if (options_.builds > 1 && !same_workers) continue;
    if (rank(other) < rank(story)) {
      violate(
          fmt::format("{} of class {} overtook {} of class {}", job, rank(story).first, other_job, rank(other).first));
    }
  }
}

void Oracle::on(const core::Execute& c, const Disk& disk) {
  const std::int64_t tenant_max = options_.core.quotas.max_concurrent_jobs;
  const std::string& job = c.job_id.value;
  Story& story = stories_.at(job);
  if (!disk.rows.contains(job)) violate("dispatched before its admission was on disk: " + job);
  if (story.decided) violate("dispatched after its end: " + job);
  if (!accepts(story, c.pool_id)) violate("dispatched where it must not run: " + job);
  if (story.request.placement != wire::Placement{}) reached("job with a placement dispatched");
  std::erase_if(attempts_, [&](const auto& item) {
    return item.second.aborted_ms &&
           loop_.now_ms() >= *item.second.aborted_ms + options_.core.timeout.cancellation_deadline_ms;
  });
  std::int64_t on_worker = 0;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.job == job) violate("two attempts at once: " + job);
    on_worker += attempt.worker == c.worker_id.value;
  }
  if (on_worker >= options_.core.worker_slots) violate("more attempts than slots on " + c.worker_id.value);
  const auto of_tenant = std::count_if(attempts_.begin(), attempts_.end(), [&](const auto& item) {
    return !item.second.aborted_ms && caller(item.second.job) == caller(job);
  });
  if (tenant_max > 0 && of_tenant >= tenant_max) violate("more jobs run than the tenant may have: " + job);
  if (tenant_max > 0 && of_tenant + 1 == tenant_max) reached("tenant with all the jobs it may run");
  check_open(c.pool_id, "a job");
  const auto& heartbeat = options_.core.heartbeat;
  const std::int64_t silent_ms = loop_.now_ms() - heard_ms_[c.pool_id.value];
  if (silent_ms > heartbeat.interval_ms * heartbeat.missed_threshold + kBoundSlackMs) {
    violate(fmt::format("a job goes to a pool that has been silent for {} ms: {}", silent_ms, c.pool_id.value));
  }
  if (out_of_reach_ms_.contains(c.pool_id.value)) {
    violate("a job goes to a pool that calls do not reach: " + c.pool_id.value);
  }
  if (purged_.contains(c.worker_id.value)) violate("a job goes to a purged worker: " + c.worker_id.value);
  ++story.runs;
  story.begun_ms = loop_.now_ms();
  attempts_[c.execution.value] = {job, c.worker_id.value, c.pool_id.value, loop_.now_ms(), {}};
  // A retried job is exempt: how long its backoff lasts is the core's own.
  if (story.waits) check_order(job, story, c.pool_id);
  story.waits = false;
}

void Oracle::on(const core::AbortExecute& c, const Disk&) {
  if (const auto it = attempts_.find(c.execution.value); it != attempts_.end()) it->second.aborted_ms = loop_.now_ms();
}

void Oracle::on(const core::StartWorker& c, const Disk&) {
  const auto devices = wire::devices_of(c.request.gpu_id);
  const auto overlaps = [&](const Start& start) {
    return start.model_ref == c.request.model_ref && start.pool == c.pool_id.value &&
           std::ranges::any_of(devices, [&](const auto& gpu) { return std::ranges::count(start.devices, gpu) > 0; });
  };
  for (const auto& [worker, start] : starts_) {
    if (start.settled || !overlaps(start)) continue;
    violate(fmt::format("two starts in flight: {} @ {}/{}", c.request.model_ref, c.pool_id.value, c.request.gpu_id));
  }
  if (drained_.contains(c.pool_id.value)) violate("a worker is started on a drained pool: " + c.pool_id.value);
  if (!starts_.emplace(c.request.worker_id, Start{c.request.model_ref, c.pool_id.value, devices, loop_.now_ms()})
           .second)
    violate("a worker id was used twice");
  workers_[c.request.worker_id] = wire::WorkerStatus::kStarting;
}

void Oracle::settle(const std::string& worker) {
  if (const auto it = starts_.find(worker); it != starts_.end()) it->second.settled = true;
}

void Oracle::heard(const core::Event& event) {
  sessions_.heard(event);
  restarts_.heard(event);
  if (const auto* e = std::get_if<core::ExecuteEnded>(&event)) {
    const auto it = attempts_.find(e->execution.value);
    if (it == attempts_.end()) return;
    if (e->error && orchestratord::core::jobs::is_transient(e->error->code)) reached("retry after worker death");
    // One that was given up on before has freed its slot then.
    const auto& aborted_ms = it->second.aborted_ms;
    if (!aborted_ms || loop_.now_ms() < *aborted_ms + options_.core.timeout.cancellation_deadline_ms) {
      used_ms_[it->second.worker] = loop_.now_ms();
    }
    attempts_.erase(it);
  } else if (const auto* drain = std::get_if<core::DrainPool>(&event)) {
    drains_asked_ms_[drain->request.value] = drain->deadline_ms;
  } else if (const auto* undrain = std::get_if<core::UndrainPool>(&event)) {
    undrain_asked_.insert(undrain->pool_id.value);
  } else if (const auto* answered = std::get_if<core::StartWorkerAnswered>(&event)) {
    if (answered->error) {
      settle(answered->worker_id.value);
      if (const auto it = starts_.find(answered->worker_id.value); it != starts_.end()) it->second.lost = true;
    }
    if (answered->error && answered->error->code == ErrorCode::kInsufficientVram) {
      reached("start refused: not enough memory");
    }
  } else if (const auto* ready = std::get_if<core::WorkerReady>(&event)) {
    workers_[ready->ready.worker.worker_id] = wire::WorkerStatus::kReady;
    settle(ready->ready.worker.worker_id);
  } else if (const auto* failed = std::get_if<core::WorkerFailed>(&event)) {
    settle(failed->failed.worker_id);
  } else if (const auto* pool = std::get_if<core::PoolSeen>(&event)) {
    heard_ms_[pool->state.pool_id] = loop_.now_ms();
    heard_pool(*pool);
  } else if (const auto* unreachable = std::get_if<core::PoolUnreachable>(&event)) {
    heard_unreachable(*unreachable);
  } else if (const auto* left = std::get_if<core::PoolDeregistered>(&event)) {
    leaving_.insert(left->pool_id.value);
    forget_desired_state(left->pool_id.value);
    forget_contact(left->pool_id.value);
  } else if (const auto* cancel = std::get_if<core::CancelRequested>(&event)) {
    heard_cancel(cancel->job_id.value);
  } else if (const auto* submit = std::get_if<core::Submit>(&event)) {
    arrives(submit->job.job_id.value);
  }
}

void Oracle::heard_cancel(const std::string& job) {
  const Story& story = stories_.at(job);
  if (story.decided) return reached("cancel met the end");
  if (story.waits) return reached("cancel of a queued job");
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.job == job) return reached("cancel of a running job");
  }
}

void Oracle::heard_unreachable(const core::PoolUnreachable& event) {
  const std::string pool = event.endpoint.substr(std::string_view("http://").size());
  if (known_.contains(pool) && event.asked_ms >= answered_ms_[pool]) out_of_reach_ms_[pool] = loop_.now_ms();
}

void Oracle::forget_contact(const std::string& pool) {
  known_.erase(pool);
  out_of_reach_ms_.erase(pool);
}

void Oracle::heard_pool(const core::PoolSeen& event) {
  const wire::PoolState& state = event.state;
  known_.insert(state.pool_id);
  if (!event.request) answered_ms_[state.pool_id] = std::max(answered_ms_[state.pool_id], event.asked_ms);
  if (const auto since = out_of_reach_ms_.find(state.pool_id); since != out_of_reach_ms_.end()) {
    if (event.request) {
      reached("report of a pool that calls do not reach");
    } else if (event.asked_ms >= since->second) {
      out_of_reach_ms_.erase(since);
    }
  }
  std::set<std::string> starting;
  for (const wire::WorkerInfo& w : state.workers) {
    if (w.status == wire::WorkerStatus::kStarting) starting.insert(w.worker_id);
    if (w.status != wire::WorkerStatus::kStarting) workers_[w.worker_id] = w.status;
    if (lives_ > 1 && w.status == wire::WorkerStatus::kReady && !starts_.contains(w.worker_id)) {
      reached("old orchestratord's worker adopted");
    }
  }
  for (auto& [id, start] : starts_) {
    if (start.pool == state.pool_id && !starting.contains(id)) start.settled = true;
  }
}

// With the pool goes what was asked of it, and what is known of its workers.
void Oracle::forget_desired_state(const std::string& pool) {
  drained_.erase(pool);
  reloading_.erase(pool);
  undrain_asked_.erase(pool);
  purged_.clear();
  for (auto& [id, start] : starts_) {
    if (start.pool == pool) start.settled = start.lost = true;
  }
}

void Oracle::on(const core::StopWorker& c, const Disk&) {
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.worker == c.worker_id.value && !attempt.aborted_ms)
      violate("a busy worker is stopped: " + c.worker_id.value);
  }
  const auto start = starts_.find(c.worker_id.value);
  const bool loading =
      workers_[c.worker_id.value] == wire::WorkerStatus::kStarting && start != starts_.end() && !start->second.settled;
  const bool forced = std::any_of(drained_.begin(), drained_.end(), [&](const auto& item) {
    return item.first == c.pool_id.value && loop_.now_ms() >= item.second.until_ms;
  });
  if (loading && !forced && loop_.now_ms() - start->second.started_ms < options_.core.worker_start_timeout_ms) {
    violate("a loading worker is stopped: " + c.worker_id.value);
  }
  settle(c.worker_id.value);
}

void Oracle::on(const core::Log& c, const Disk& disk) {
  const auto field = [&](std::string_view wanted) -> std::string_view {
    for (const base::LogField& f : c.fields) {
      if (f.name == wanted) {
        if (const auto* text = std::get_if<std::string>(&f.value)) return *text;
      }
    }
    return "";
  };
  const bool is_read =
      c.event == "worker.ready" || c.event == "worker.gone" || c.event == "worker.stop" || c.event == "pool.left";
  if (is_read && std::ranges::find(c.fields, "left_out_before", &base::LogField::name) != c.fields.end()) {
    violate(fmt::format("lines of {} were left out, by which this is checked", c.event));
  }
  if (c.event == "worker.ready" || c.event == "worker.gone") {
    if (const auto it = starts_.find(std::string(field("worker_id"))); it != starts_.end()) {
      it->second.ready_ms = loop_.now_ms();
      it->second.lost |= c.event == "worker.gone";
    }
  }
  if (c.event == "worker.stop") check_stop_reason(field("worker_id"), field("reason"));
  if (c.event == "worker.crashes") reached("crashes held up a start");
  if (c.event == "pool.offline") forget_contact(std::string(field("pool_id")));
  if (c.event == "pool.drained") reached("pool drained");
  if (c.event == "pool.deadline") reached("deadline of a drain");
  if (c.event == "pool.left") {
    reached("pool left");
    leaving_.erase(std::string(field("pool_id")));
    forget_desired_state(std::string(field("pool_id")));  // those too that were on their way when it deregistered
    forget_contact(std::string(field("pool_id")));
  }
  if (c.event == "job.put_back") reached("job put back by an operator");
  if (c.event == "pool.reloaded") {
    reached(fmt::format("reload: {}", field("state")));
    const std::string pool(field("pool_id"));
    const auto desired = disk.desired.find(pool);
    const bool there = desired != disk.desired.end() && desired->second.reload &&
                       wire::enum_name(desired->second.reload->state) == field("state");
    if (!there && !leaving_.contains(pool)) violate("the end of a reload is told before it is on disk: " + pool);
    if (there && field("state") != "done" && !desired->second.reload->error) violate("a reload failed untold: " + pool);
    reloading_.erase(pool);
  }
  if (c.event == "schedule.decided" && field("outcome") == "evict") reached("evicted an idle worker");
  if (c.event == "schedule.decided" && field("outcome") == "reserve")
    reached("reserved a worker for a model that waited");
}

void Oracle::on(const core::AnswerPoolControl& c, const Disk& disk) {
  const auto asked = drains_asked_ms_.find(c.request.value);
  if (!c.result) return;
  const std::string& pool = c.result->pool_id;
  const auto desired = disk.desired.find(pool);
  const bool there = desired != disk.desired.end();
  if (c.result->status == "draining") {
    if (!there || !desired->second.draining) violate("a 202 for a drain that is not on disk: " + pool);
    drained_[pool] = {loop_.now_ms() + (asked == drains_asked_ms_.end() ? 0 : asked->second)};
    undrain_asked_.erase(pool);
    reached("drain begun");
  } else if (c.result->status == "serving") {
    drained_.erase(pool);
  } else if (c.result->status == "reloading") {
    if (!there || !desired->second.reload) violate("a 202 for a reload that is not on disk: " + pool);
    reloading_.insert(pool);
  } else if (c.result->status == "purging") {
    const auto is_there = [&](const std::string& worker) {
      return there && std::find(desired->second.purged.begin(), desired->second.purged.end(), worker) !=
                          desired->second.purged.end();
    };
    if (!std::all_of(c.result->workers.begin(), c.result->workers.end(), is_there)) {
      violate("a 202 for a purge that is not on disk: " + pool);
    }
    purged_.insert(c.result->workers.begin(), c.result->workers.end());
  }
}

void Oracle::check_open(const base::PoolId& pool, std::string_view what) {
  if (drained_.contains(pool.value)) violate(fmt::format("{} goes to a drained pool: {}", what, pool.value));
  if (reloading_.contains(pool.value)) violate(fmt::format("{} goes to a pool that is reloaded: {}", what, pool.value));
}

void Oracle::check_stop_reason(std::string_view worker, std::string_view reason) {
  reached(fmt::format("worker stopped: {}", reason));
  const std::string id(worker);
  if (reason == "idle") {
    const auto used = used_ms_.find(id);
    if (used != used_ms_.end() && loop_.now_ms() - used->second < options_.core.eviction.worker_idle_ttl_ms) {
      violate("a worker is unloaded before its time: " + id);
    }
  }
  const auto start = starts_.find(id);
  if (reason != "evict" || start == starts_.end()) return;
  if (start->second.devices.size() > 1) reached("shared worker evicted");
  if (start->second.ready_ms == 0 || start->second.lost) return;
  const std::int64_t took_ms = start->second.ready_ms - start->second.started_ms;
  if (loop_.now_ms() - start->second.ready_ms < took_ms)
    violate("a worker is evicted before its load has paid off: " + id);
}

void Oracle::check_bounds() {
  sessions_.check_bounds();
  for (const auto& [id, attempt] : attempts_) {
    if (attempt.aborted_ms) continue;
    const JobRequest& request = stories_.at(attempt.job).request;
    const auto& limits = options_.core.timeout;
    const std::int64_t limit_ms = std::min(request.timeout_ms.value_or(limits.default_ms), limits.max_ms);
    if (loop_.now_ms() - attempt.begun_ms > limit_ms + kBoundSlackMs) {
      violate(fmt::format("{} runs for {} ms, its limit was {} ms", attempt.job, loop_.now_ms() - attempt.begun_ms,
                          limit_ms));
    }
    const auto drain = drained_.find(attempt.pool);
    if (drain != drained_.end() && loop_.now_ms() > drain->second.until_ms + kBoundSlackMs) {
      violate(attempt.job + " runs on after the deadline of a drain");
    }
  }
  for (const auto& [job, story] : stories_) {
    if (!story.here || story.decided || !story.accepted) continue;
    const std::int64_t age_ms = loop_.now_ms() - story.deadline_from_ms;
    if (story.request.deadline_ms && age_ms > *story.request.deadline_ms + kBoundSlackMs) {
      violate(fmt::format("{} lives {} ms, its deadline was {} ms", job, age_ms, *story.request.deadline_ms));
    }
    const std::int64_t queue_ms = options_.core.timeout.queue_ms;
    if (queue_ms > 0 && story.waits && loop_.now_ms() - story.queued_ms > queue_ms + kBoundSlackMs) {
      violate(fmt::format("{} waits {} ms, the limit is {} ms", job, loop_.now_ms() - story.queued_ms, queue_ms));
    }
  }
}

// ---- disk -----------------------------------------------------------------------------------------------------------

void Oracle::retired(const std::string& job) {
  stories_.at(job).retired = true;
  reached("finished job gone after its retention");
}

void Oracle::row_moves(const Row& row, JobStatus to) {
  const bool crash_redo = row.status == to;
  if (wire::is_terminal(row.status) && !crash_redo) {
    violate(fmt::format("{} was {} on disk and becomes {}", row.request.task_id, wire::enum_name(row.status),
                        wire::enum_name(to)));
  }
}

void Oracle::check_end(const Disk& disk) {
  for (const std::string& pool : reloading_) violate("a reload never ended: " + pool);
  for (const auto& [job, story] : stories_) {
    const auto row = disk.rows.find(job);
    if (story.accepted && !story.retired && row == disk.rows.end()) violate("an accepted job has no row: " + job);
    if (row == disk.rows.end()) continue;
    if (!wire::is_terminal(row->second.status)) {
      violate(fmt::format("never ended: {} is {}", job, wire::enum_name(row->second.status)));
    }
    if (!story.ending) continue;
    if (row->second.event != story.ending->first || row->second.data != story.ending->second) {
      violate(
          fmt::format("{} ended as {} on disk and as {} for its client", job, row->second.data, story.ending->second));
    }
  }
}

}  // namespace llorch::sim
