#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

void Core::verify() const { state_->verify(); }

void Core::State::verify() const {
  std::int64_t in_queue = 0;
  std::map<GroupIndex, std::int64_t> jobs_of;
  for (const auto& [arrival, job] : jobs) {
    const std::string& id = job.spec.job_id.value;
    const bool waits = job.status == JobStatus::kQueued;
    ASSERT((queue.find(arrival) != nullptr) == waits, "job {}", id);
    in_queue += waits;
    ++jobs_of[job.group];
    ASSERT(job.ending.has_value() == wire::is_terminal(job.status), "job {}", id);
    const bool on_worker = job.status == JobStatus::kDispatched || job.status == JobStatus::kRunning;
    ASSERT(job.execution.has_value() == on_worker, "job {}", id);
    if (job.execution) {
      ASSERT(executions.contains(*job.execution) && executions.at(*job.execution).job == arrival, "job {}", id);
    }
  }
  ASSERT(queue.depth() == in_queue, "{} queued, {} say so", queue.depth(), in_queue);

  std::map<base::WorkerId, std::int64_t> slots;
  std::set<Arrival> attempted;
  for (const auto& [id, x] : executions) {
    ++slots[x.worker_id];
    ASSERT(attempted.insert(x.job).second, "two attempts of job {}", x.job_id.value);
  }
  for (const auto& [pool_id, pool] : registry.pools()) {
    for (const auto& [id, w] : pool.workers) {
      ASSERT(w.slots_in_use == slots[id], "worker {}: {} in use, {} executions", id.value, w.slots_in_use, slots[id]);
      ASSERT(w.claimed_by.has_value() == claims.contains(id), "worker {}", id.value);
      ASSERT(w.retiring == retiring.contains(id), "worker {}", id.value);
    }
  }
  std::int64_t awaited = 0;
  for (const auto& [id, commit] : commits) awaited += commit.kind != PendingCommit::Kind::kProgress;
  ASSERT(awaited == commits_awaited, "{} {}", awaited, commits_awaited);

  for (std::size_t i = 0; i < groups.size(); ++i) {
    ASSERT(groups[i].jobs == jobs_of[GroupIndex{i}], "group {}: {} jobs, {} say so", i, groups[i].jobs,
           jobs_of[GroupIndex{i}]);
  }

  std::map<std::int64_t, sessions::Reservation> reserved;
  std::map<std::int64_t, std::int64_t> live;
  for (const auto& [arrival, job] : jobs) {
    if (!job.session) continue;
    reserved[job.session->key].tokens += job.session->reservation.tokens;
    reserved[job.session->key].cost_nano += job.session->reservation.cost_nano;
    ++live[job.session->key];
  }
  for (const auto& [key, s] : sessions.all()) {
    ASSERT(s.reserved.tokens == reserved[key].tokens && s.reserved.cost_nano == reserved[key].cost_nano,
           "session {}: {} tokens reserved, its jobs have {}", s.record.session_id.value, s.reserved.tokens,
           reserved[key].tokens);
    ASSERT(s.jobs_live == live[key], "session {}: {} jobs, {} say so", s.record.session_id.value, s.jobs_live,
           live[key]);
    const std::int64_t spoken_for = s.use.tokens_in + s.use.tokens_out + s.reserved.tokens;
    ASSERT(!s.record.token_budget || spoken_for <= *s.record.token_budget, "session {}: {} of {} tokens",
           s.record.session_id.value, spoken_for, *s.record.token_budget);
  }

  std::map<std::string, std::pair<std::int64_t, std::int64_t>> tenants;  // running, reserved
  for (const auto& [arrival, job] : jobs) tenants[job.spec.tenant_id].second += tokens_most(job.spec);
  for (const auto& [id, x] : executions) ++tenants[x.tenant_id].first;
  for (const auto& [id, sums] : tenants) {
    ASSERT(quotas.running(id) == sums.first && quotas.reserved(id) == sums.second,
           "tenant {}: {} running, {} say so; {} tokens reserved, its jobs have {}", id, quotas.running(id), sums.first,
           quotas.reserved(id), sums.second);
    const std::int64_t limit = quotas.concurrent_max(id);
    ASSERT(limit == 0 || sums.first <= limit, "tenant {} runs {} of {}", id, sums.first, limit);
  }

  // Nobody waits while a worker could take the job now.
  if (draining) return;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const JobGroup& l = groups[i];
    if (!queue.head_of(GroupIndex{i})) continue;
    const wire::ModelFacts& facts = model(l.model).facts;
    ASSERT(l.wait, "model {} waits for nothing", facts.digest);
    if (!may_run(l)) continue;
    for (const Worker* w : registry.workers_of(facts.digest)) {
      ASSERT(!accepts(l, *w) || !serves(*w, facts) || w->slots_free() == 0 || !keeps_replica_set(l, *w),
             "worker {} is idle", w->id.value);
    }
  }
}

}  // namespace llorch::orchestratord::core
