#include "orchestratord/core/jobs/jobs.h"

#include <set>

#include "base/assert.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::orchestratord::core {

namespace {
// Nobody knows how the disk is until somebody writes: an older failure says nothing of now.
constexpr std::int64_t kStoreFailureHoldsMs = 30000;
}  // namespace

Job* Jobs::find(Arrival arrival) {
  const auto it = jobs_.find(arrival);
  return it == jobs_.end() ? nullptr : &it->second;
}

Job* Jobs::find(const base::JobId& id) {
  const auto it = arrival_of_.find(id);
  return it == arrival_of_.end() ? nullptr : &at(it->second);
}

Execution* Jobs::find(ExecutionId id) {
  const auto it = executions_.find(id);
  return it == executions_.end() ? nullptr : &it->second;
}

Execution* Jobs::find_deciding(ExecutionId id) {
  Execution* x = find(id);
  const Job* job = x != nullptr ? find(x->job) : nullptr;
  return job != nullptr && job->execution.get() == id ? x : nullptr;
}

Job& Jobs::add(jobs::JobSpec spec, base::Time now) {
  const Arrival arrival{++arrivals_};
  const bool is_new = arrival_of_.emplace(spec.job_id, arrival).second;
  ASSERT(is_new, "job {} was submitted twice", spec.job_id.value);
  Job& job = jobs_.emplace_hint(jobs_.end(), arrival, Job{})->second;
  job.spec = std::move(spec);
  job.arrival = arrival;
  job.submitted_ms = job.deadline_from_ms = job.queued_ms = now.mono_ms;
  job.submitted_unix_ms = now.unix_ms;
  return job;
}

void Jobs::erase(const Job& job) {
  arrival_of_.erase(job.spec.job_id);
  jobs_.erase(Arrival{job.arrival});
}

void Jobs::move(Job& job, JobStatus to) {
  ASSERT(jobs::is_legal(job.status, to) && !job.outcome, "job {}: {} -> {}", job.spec.job_id.value,
         wire::enum_name(job.status.get()), wire::enum_name(to));
  job.status = to;
}

void Jobs::conclude(Job& job, Outcome outcome) {
  move(job, outcome.status);
  job.outcome = std::move(outcome);
}

Execution& Jobs::begin_attempt(Job& job, const Worker& worker) {
  ASSERT(job.admitted && !job.execution, "job {}", job.spec.job_id.value);
  ASSERT(worker.takes_work() && worker.slots_free() > 0, "worker {}", worker.id.value);
  move(job, JobStatus::kDispatched);
  if (!job.resumes_attempt) ++job.attempts;
  job.resumes_attempt = false;
  job.worker_id = worker.id;
  job.pool_id = worker.pool_id;
  job.gpu_id = worker.info.gpu_id;
  job.engine = wire::engine_of(worker.info.engine_build);
  job.tokens_out = 0;
  job.execution = ExecutionId{++execution_count_};
  Execution& x = executions_.emplace_hint(executions_.end(), *job.execution, Execution{})->second;
  x.id = *job.execution;
  x.job = job.arrival;
  x.job_id = job.spec.job_id;
  x.worker_id = worker.id;
  x.worker_version = worker.version;
  x.tenant_id = job.spec.tenant_id;
  x.uri = worker.info.uri;
  return x;
}

void Jobs::verify() const {
  for (const auto& [arrival, job] : jobs_) {
    const std::string& id = job.spec.job_id.value;
    ASSERT(bool{job.outcome} == wire::is_terminal(job.status), "job {}", id);
    const bool on_worker = job.status == JobStatus::kDispatched || job.status == JobStatus::kRunning;
    ASSERT(bool{job.execution} == on_worker, "job {}", id);
    if (!job.execution) continue;
    const auto x = executions_.find(*job.execution);
    ASSERT(x != executions_.end() && x->second.job == arrival, "job {}", id);
  }
  ASSERT(arrival_of_.size() == jobs_.size(), "{} of {} jobs have an id", arrival_of_.size(), jobs_.size());
  std::set<Arrival> attempted;
  for (const auto& [id, x] : executions_) {
    ASSERT(attempted.insert(x.job).second, "two attempts of job {}", x.job_id.value);
  }
}

CommitId Commits::add(PendingCommit commit) {
  if (commit.kind != PendingCommit::Kind::kProgress) ++awaited_;
  return commits_.emplace_hint(commits_.end(), number(), commit)->first;
}

std::optional<PendingCommit> Commits::take(CommitId id) {
  const auto node = commits_.extract(id);
  if (node.empty()) return std::nullopt;
  if (node.mapped().kind != PendingCommit::Kind::kProgress) --awaited_;
  return node.mapped();
}

bool Commits::store_failing(std::int64_t now_ms) const {
  return failed_ms_ && now_ms - *failed_ms_ < kStoreFailureHoldsMs;
}

void Commits::verify() const {
  std::int64_t awaited = 0;
  for (const auto& [id, commit] : commits_) awaited += commit.kind != PendingCommit::Kind::kProgress;
  ASSERT(awaited == awaited_, "{} {}", awaited, awaited_);
}

}  // namespace llorch::orchestratord::core
