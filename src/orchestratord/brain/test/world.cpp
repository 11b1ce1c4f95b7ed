#include "orchestratord/brain/test/world.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "orchestratord/brain/test/describe.h"
#include "orchestratord/retry/backoff.h"
#include "orchestratord/scheduling/preference.h"

namespace llorch::orchestratord::brain {

using base::ErrorCode;
using contract::JobStatus;
using contract::WorkerStatus;

namespace {

constexpr std::int64_t kGb = 1'000'000'000;
struct ModelOnShelf {
  std::string name;
  std::int64_t bytes;
};
const std::vector<ModelOnShelf> kShelf = {{"a", 3 * kGb}, {"b", 4 * kGb}, {"c", 7 * kGb}, {"huge", 90 * kGb}};

contract::ModelFacts facts(const ModelOnShelf& m) {
  return {
      .model_ref = "file:/" + m.name, .digest = "sha256:" + m.name, .context_length = 1000, .memory_bytes = m.bytes};
}
std::int64_t bytes_of(const std::string& digest) {
  for (const ModelOnShelf& m : kShelf) {
    if (facts(m).digest == digest) return m.bytes;
  }
  return 0;
}

}  // namespace

World::World(std::uint64_t seed, bool decide_every_lane) : rng_(seed), seed_(seed), entropy_(seed) {
  config_.decide_every_lane = decide_every_lane;
  config_.queue.capacity = chance(50) ? 6 : 40;
  config_.queue.policy = static_cast<contract::QueuePolicy>(pick(3));
  config_.scheduling.algorithm = static_cast<contract::PlacementAlgorithm>(pick(4));
  config_.sessions.turns_max = 1000;
  config_.sessions.ttl_ms = 60'000;
  if (chance(60)) config_.sessions.token_budget = 40 + static_cast<std::int64_t>(pick(200));
  config_.queue_optimizer.threshold_jobs = static_cast<std::int64_t>(pick(6));
  config_.queue_optimizer.interval_ms = 1'000 + static_cast<std::int64_t>(pick(30'000));
  config_.worker_slots = 1 + static_cast<std::int64_t>(pick(3));
  config_.workers_per_gpu = 1 + static_cast<std::int64_t>(pick(2));
  config_.retry.max_attempts = 1 + static_cast<std::int64_t>(pick(5));
  config_.timeout.queue_ms = chance(20) ? 120'000 : 0;
  config_.restart.running_jobs = chance(10) ? contract::RunningJobs::kFail : contract::RunningJobs::kReplay;
  if (chance(40)) config_.quotas.max_concurrent_jobs = 1 + static_cast<std::int64_t>(pick(3));
  if (chance(30)) config_.quotas.token_budget_daily = 200 + static_cast<std::int64_t>(pick(400));
  builds_change_ = chance(50);
  const std::size_t pool_count = 1 + pick(2);
  for (std::size_t p = 0; p < pool_count; ++p) {
    SimPool pool;
    pool.base.pool_id = fmt::format("pool-{}", p);
    pool.base.endpoint = "http://" + pool.base.pool_id;
    pool.base.boot_id = fmt::format("boot-{}", ++boots_);
    const std::size_t devices = 1 + pick(2);
    for (std::size_t g = 0; g < devices; ++g) {
      pool.base.gpus.push_back(
          {.gpu_id = std::to_string(g), .vram_total_bytes = (6 + static_cast<std::int64_t>(pick(6))) * kGb});
    }
    if (chance(50)) config_.pool_endpoints.push_back(pool.base.endpoint);
    pools_.push_back(std::move(pool));
  }
  boot();
}

void World::violate(std::string what) {
  if (violation_.empty()) violation_ = fmt::format("seed {} at {} ms: {}", seed_, now_.mono_ms, what);
}

// A new life of the orchestrator: what was in flight inside the process is lost, what is on disk is not.
void World::boot() {
  ++lives_;
  messages_.clear();
  writes_.clear();
  executions_.clear();
  in_flight_.clear();
  starts_.clear();
  brain_ = std::make_unique<Brain>(config_, entropy_);
  Restored restored;
  for (const std::string& id : row_order_) {
    const Row& row = rows_.at(id);
    Known& k = known_.at(id);
    k.told = row.status;
    k.restored = true;
    k.sealed = false;  // an ending that did not reach the disk never happened
    if (contract::is_terminal(row.status)) continue;
    k.told = JobStatus::kQueued;
    restored.jobs.push_back({.spec = row.spec,
                             .status = row.status,
                             .attempts = row.attempts,
                             .submitted_unix_ms = row.submitted_unix_ms,
                             .session_key = row.session_key,
                             .payload_available = !chance(2),
                             .worker_version = row.worker_version});
  }
  if (lives_ > 1) {
    for (const SimPool& pool : pools_) restored.pool_endpoints.push_back(pool.base.endpoint);
  }
  restored.sessions = restored_sessions();
  restored.tenants = restored_tenants();
  feed(std::move(restored));
}

// What a store makes of its rows.
std::vector<sessions::RestoredSession> World::restored_sessions() const {
  std::vector<sessions::RestoredSession> out;
  for (const auto& [key, record] : sessions_) {
    sessions::RestoredSession& s = out.emplace_back();
    s.session = record;
    s.last_activity_unix_ms = now_.unix_ms;
    for (const auto& [id, row] : rows_) {
      if (row.session_key != key) continue;
      ++s.use.turns;
      if (!contract::is_terminal(row.status)) continue;
      s.use.tokens_in += row.attempts > 0 ? row.spec.tokens_in : 0;
      s.use.tokens_out += std::min(row.tokens_out, row.spec.max_tokens);
      s.use.decode_time_ms += row.decode_time_ms;
    }
  }
  return out;
}

std::vector<sessions::TenantUse> World::restored_tenants() const {
  constexpr std::int64_t kDayMs = 86'400'000;
  std::map<std::string, std::int64_t> used;
  for (const auto& [id, row] : rows_) {
    if (!contract::is_terminal(row.status) || row.finished_unix_ms / kDayMs != now_.unix_ms / kDayMs) continue;
    used[row.spec.tenant_id] +=
        (row.attempts > 0 ? row.spec.tokens_in : 0) + std::min(row.tokens_out, row.spec.max_tokens);
  }
  std::vector<sessions::TenantUse> out;
  for (const auto& [id, tokens] : used) out.push_back({id, tokens});
  return out;
}

void World::feed(Event event) {
  before_event(event);
  std::vector<Command> commands;
  brain_->step(std::move(event), now_, commands);
  brain_->verify();
  for (const Command& c : commands) {
    transcript_ += describe(c);
    transcript_ += '\n';
    obey(c);
  }
}

void World::tell(std::string source, Event event, bool may_be_lost) {
  if (may_be_lost && !healing_ && chance(10)) return;
  messages_.push_back({std::move(source), std::move(event)});
}

void World::deliver_random() {
  if (messages_.empty()) return;
  std::size_t i = pick(messages_.size());
  if (!messages_[i].source.empty()) {
    const auto first = std::find_if(messages_.begin(), messages_.end(),
                                    [&](const Message& m) { return m.source == messages_[i].source; });
    i = static_cast<std::size_t>(first - messages_.begin());
  }
  Event event = messages_[i].event;
  // Some arrive twice: once more, later and in any order.
  if (!healing_ && chance(5)) {
    messages_[i].source.clear();
    ++seen["doubled"];
  } else {
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  feed(std::move(event));
}

void World::deliver_all() {
  while (!messages_.empty()) {
    Event event = std::move(messages_.front().event);
    messages_.erase(messages_.begin());
    feed(std::move(event));
  }
}

void World::chaos(int steps) {
  for (int i = 0; i < steps && violation_.empty(); ++i) act();
}

void World::act() {
  const std::uint64_t dice = pick(100);
  if (dice < 36) return deliver_random();
  if (dice < 46) return submit();
  if (dice < 58) return commit_writes(chance(12));
  if (dice < 76) return worker_action(false);
  if (dice < 86) {
    const std::int64_t ms =
        chance(80) ? static_cast<std::int64_t>(pick(2000)) : static_cast<std::int64_t>(pick(70'000));
    now_.mono_ms += ms;
    now_.unix_ms += ms;
    return feed(Tick{});
  }
  if (dice < 90) return report(pools_[pick(pools_.size())]);
  if (dice < 93) return cancel();
  if (dice < 96) return kill_worker();
  if (dice < 97) return restart_pool();
  if (dice < 98) {
    SimPool& pool = pools_[pick(pools_.size())];
    pool.reachable = !pool.reachable;
    ++seen["partition"];
    return;
  }
  if (dice < 99) {
    feed(QueryJobs{{++requests_}});
    return feed(QueryPools{{++requests_}});
  }
  if (!chance(30)) return;
  ++seen["restart"];
  boot();
}

void World::submit() {
  const ModelOnShelf& m = kShelf[chance(3) ? 3 : pick(3)];
  jobs::JobSpec spec{.job_id = base::JobId(fmt::format("j{}", ++submissions_)),
                     .model = facts(m),
                     .priority = chance(40) ? contract::Priority::kBatch : contract::Priority::kInteractive,
                     .tokens_in = 10,
                     .max_tokens = 20};
  if (chance(40)) spec.session_id = base::SessionId(fmt::format("s{}", pick(3)));
  if (chance(10)) spec.deadline_ms = 20'000 + static_cast<std::int64_t>(pick(100'000));
  if (chance(10)) spec.timeout_ms = 5'000 + static_cast<std::int64_t>(pick(60'000));
  if (chance(30)) spec.placement = placement();
  spec.tenant_id = fmt::format("t{}", pick(2));
  known_[spec.job_id.value] = {.spec = spec, .order = submissions_};
  feed(Submit{{++requests_}, std::move(spec)});
}

contract::Placement World::placement() {
  const std::string pool = pools_[pick(pools_.size())].base.pool_id;
  switch (pick(4)) {
    case 0: return {.mode = contract::PlacementMode::kPin, .pin_pool_id = pool};
    case 1: return {.mode = contract::PlacementMode::kPrefer, .prefer_pools = {pool}, .allow_fallback = chance(50)};
    case 2: return {.avoid_pools = {pool}};
    default: return {.require_device_mask = std::to_string(pick(2))};
  }
}

void World::cancel() {
  if (submissions_ == 0) return;
  const base::JobId id(fmt::format("j{}", 1 + pick(submissions_)));
  std::optional<RequestId> request;
  if (chance(70)) request = RequestId{++requests_};
  feed(CancelRequested{request, id, jobs::CancelReason::kClientRequest});
  ++seen["cancel"];
}

// One group commit: all or nothing.
void World::commit_writes(bool fail) {
  if (writes_.empty()) return;
  std::vector<CommitId> commits;
  for (const Write& w : writes_) {
    commits.push_back(w.commit);
    if (fail) continue;
    if (w.admission) {
      const std::string& id = w.admission->job_id.value;
      if (!rows_.emplace(id, Row{.spec = known_.at(id).spec, .submitted_unix_ms = w.admission->submitted_unix_ms})
               .second) {
        violate("row written twice: " + id);
      }
      row_order_.push_back(id);
      if (w.admission->session) {
        rows_.at(id).session_key = w.admission->session->key;
        sessions_.emplace(w.admission->session->key, *w.admission->session);
      }
      continue;
    }
    const jobs::JobRecord& record = w.transition->record;
    const auto row = rows_.find(record.job_id.value);
    if (row == rows_.end()) return violate("transition without a row: " + record.job_id.value);
    row->second.status = record.status;
    row->second.attempts = record.attempts;
    row->second.tokens_out = record.tokens_out.value_or(row->second.tokens_out);
    row->second.decode_time_ms = record.decode_time_ms.value_or(0);
    row->second.finished_unix_ms = record.finished_unix_ms.value_or(0);
    row->second.worker_version = record.worker_version.value_or(row->second.worker_version);
    row->second.terminal_writes += contract::is_terminal(record.status);
  }
  writes_.clear();
  if (fail) {
    ++seen["commit failed"];
    return tell("store", CommitFailed{commits, {ErrorCode::kIoError, "disk", {}}});
  }
  tell("store", Committed{commits});
}

std::int64_t World::active_on(const std::string& worker_id) const {
  return std::count_if(executions_.begin(), executions_.end(), [&](const auto& item) {
    return !item.second.ended && item.second.command.worker_id.value == worker_id;
  });
}

void World::worker_action(bool healthy) {
  std::vector<std::function<void()>> choices;
  for (SimPool& pool : pools_) {
    for (auto& [id, w] : pool.workers) {
      if (w.draining && active_on(id) == 0) {
        choices.push_back([this, &pool, id = id] {
          drop_worker(pool, id);
          tell("",
               WorkerFailed{{.worker_id = id,
                             .pool_id = pool.base.pool_id,
                             .category = contract::FailureCategory::kExplicitStop}},
               true);
        });
      } else if (w.info.status == WorkerStatus::kStarting) {
        choices.push_back([this, &pool, &w, id = id, healthy] {
          if (!healthy && chance(20)) {
            const std::string gpu = w.info.gpu_id;
            drop_worker(pool, id);
            ++seen["start failed"];
            return tell("",
                        WorkerFailed{{.worker_id = id,
                                      .pool_id = pool.base.pool_id,
                                      .gpu_id = gpu,
                                      .error_code = chance(20) ? "CORRUPT_FILE" : "WORKER_START_FAILED"}},
                        true);
          }
          w.info.status = WorkerStatus::kReady;
          w.info.uri = "http://" + id;
          w.info.vram_bytes = w.bytes;
          tell("", WorkerReady{{.pool_id = pool.base.pool_id, .worker = w.info}}, true);
        });
      }
    }
  }
  for (auto& [id, x] : executions_) {
    if (!x.ended) choices.push_back([this, &execution = x, healthy] { execution_action(execution, healthy); });
  }
  if (!choices.empty()) choices[pick(choices.size())]();
}

void World::execution_action(SimExecution& x, bool healthy) {
  const std::string source = fmt::format("relay {}", x.command.execution.value);
  if (x.aborted) {
    if (!x.deaf || healthy || chance(20)) end_execution(x, ErrorCode::kCancelled);
    return;
  }
  if (!x.started) {
    x.started = true;
    return tell(source, ExecuteStarted{x.command.execution});
  }
  if (!healthy && chance(10)) {
    constexpr ErrorCode kCodes[] = {ErrorCode::kWorkerReset, ErrorCode::kUnreachable, ErrorCode::kVramOom,
                                    ErrorCode::kCancelled, ErrorCode::kReplayDiverged};
    ++seen["execution failed"];
    return end_execution(x, kCodes[pick(std::size(kCodes))]);
  }
  if (chance(40)) {
    x.tokens += 5;
    return tell(source, ExecuteProgress{x.command.execution, x.tokens});
  }
  end_execution(x, std::nullopt);
}

void World::end_execution(SimExecution& x, std::optional<ErrorCode> error) {
  x.ended = true;
  ExecuteEnded e{.execution = x.command.execution, .tokens_out = x.tokens, .end = {}, .error = {}};
  if (error) {
    e.error = base::Error{*error, "sim", {}};
  } else {
    e.end = contract::EndEvent{.job_id = x.command.job_id.value, .tokens_in = 10, .tokens_out = x.tokens};
  }
  tell(fmt::format("relay {}", x.command.execution.value), e);
}

void World::drop_worker(SimPool& pool, const std::string& id) {
  for (auto& [execution_id, x] : executions_) {
    if (!x.ended && x.command.worker_id.value == id) end_execution(x, ErrorCode::kWorkerReset);
  }
  pool.workers.erase(id);
}

void World::kill_worker() {
  SimPool& pool = pools_[pick(pools_.size())];
  if (pool.workers.empty()) return;
  auto it = pool.workers.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(pick(pool.workers.size())));
  const std::string id = it->first;
  drop_worker(pool, id);
  ++seen["worker killed"];
  tell("",
       WorkerFailed{{.worker_id = id, .pool_id = pool.base.pool_id, .exit_code = 137, .error_code = "WORKER_RESET"}},
       true);
}

void World::restart_pool() {
  SimPool& pool = pools_[pick(pools_.size())];
  while (!pool.workers.empty()) drop_worker(pool, pool.workers.begin()->first);
  pool.base.boot_id = fmt::format("boot-{}", ++boots_);
  if (builds_change_ && chance(50)) ++pool.build;
  ++seen["pool restarted"];
  report(pool);
}

contract::PoolState World::state_of(const SimPool& pool) const {
  contract::PoolState s = pool.base;
  s.timestamp_ms = now_.unix_ms;
  s.uptime_seconds = now_.mono_ms / 1000;
  for (contract::GpuInfo& gpu : s.gpus) {
    std::int64_t loaded = 0;
    for (const auto& [id, w] : pool.workers) {
      if (w.info.gpu_id != gpu.gpu_id) continue;
      loaded += w.info.vram_bytes;  // counted once ready, as pool-managerd does
      gpu.workers.push_back(id);
    }
    gpu.vram_allocated_bytes = loaded;
    gpu.vram_available_bytes = gpu.vram_total_bytes - loaded;
  }
  for (const auto& [id, w] : pool.workers) {
    s.workers.push_back(w.info);
    if (w.draining) s.workers.back().status = WorkerStatus::kDraining;
  }
  return s;
}

void World::report(SimPool& pool) {
  if (!pool.reachable) return;
  std::optional<RequestId> request;
  if (chance(50)) request = RequestId{++requests_};
  tell("", PoolSeen{request, state_of(pool), {}}, true);
}

World::SimPool* World::pool_at(const std::string& endpoint) {
  for (SimPool& pool : pools_) {
    if (pool.base.endpoint == endpoint) return &pool;
  }
  return nullptr;
}

// ---- the world obeys ------------------------------------------------------------------------------------------------

void World::obey(const Command& command) {
  std::visit([this](const auto& c) { obey(c); }, command);
}

void World::obey(const CommitAdmission& c) { writes_.push_back({c.commit, c, {}}); }

void World::obey(const CommitTransition& c) {
  Known& k = known_.at(c.record.job_id.value);
  const bool again = contract::is_terminal(k.told) && k.told == c.record.status;  // a failed write, repeated
  const bool restored = k.told == JobStatus::kQueued && c.record.status == JobStatus::kQueued;
  if (!again && !restored && !jobs::is_legal(k.told, c.record.status))
    violate("illegal transition of " + c.record.job_id.value);
  if (!k.committed_told && !k.restored) violate("transition before admission of " + c.record.job_id.value);
  k.told = c.record.status;
  writes_.push_back({c.commit, {}, c});
}

void World::obey(const ForgetSession& c) {
  sessions_.erase(c.session_key);
  ++seen["session ended"];
}

void World::obey(const AnswerSubmit& c) {
  Known& k = known_.at(c.job_id.value);
  if (k.answered) violate("answered twice: " + c.job_id.value);
  k.answered = true;
  k.accepted = c.result.has_value();
  if (k.accepted && !rows_.contains(c.job_id.value)) violate("a 202 without a row: " + c.job_id.value);
  ++seen[k.accepted ? "accepted" : "refused"];
  if (!k.accepted) ++seen[std::string(c.result.error().name())];
}

void World::obey(const Finish& c) {
  Known& k = known_.at(c.job_id.value);
  if (++k.finishes > 1) violate("finished twice: " + c.job_id.value);
  const auto row = rows_.find(c.job_id.value);
  if (row == rows_.end() || row->second.status != c.status) violate("finish before its commit: " + c.job_id.value);
  const bool cancelled_code = c.error && c.error->code == ErrorCode::kCancelled;
  if ((c.status == JobStatus::kCancelled) != cancelled_code) violate("status and code disagree: " + c.job_id.value);
  if ((c.status == JobStatus::kCompleted) != c.end.has_value()) violate("completed without end: " + c.job_id.value);
  ++seen[c.error ? std::string(c.error->name()) : "completed"];
}

// Which way each decision went, so that no way stays untried.
void World::obey(const Log& c) {
  if (c.event == "worker.version_mismatch") ++seen["version mismatch"];
  const bool decided = c.event == "schedule.decided", suggested = c.event == "optimizer.suggestion";
  for (const base::LogField& f : c.fields) {
    if (decided && f.name == "outcome") ++seen["decided: " + std::get<std::string>(f.value)];
    if (decided && f.name == "reason") ++seen["reason: " + std::get<std::string>(f.value)];
    if (decided && f.name == "fallback_used" && std::get<bool>(f.value)) ++seen["fallback"];
    if (suggested && f.name == "kind") ++seen["optimizer: " + std::get<std::string>(f.value)];
  }
}

void World::obey(const SealStream& c) { known_.at(c.job_id.value).sealed = true; }

void World::obey(const Execute& c) {
  check_execute(c);
  SimExecution& x = executions_[c.execution.value];
  x.command = c;
  x.deaf = chance(15);
  in_flight_[c.execution.value] = {c.job_id, c.worker_id, {}};
  SimWorker* worker = nullptr;
  for (SimPool& pool : pools_) {
    const auto it = pool.workers.find(c.worker_id.value);
    if (it != pool.workers.end() && pool.reachable) worker = &it->second;
  }
  if (!worker || worker->info.status != WorkerStatus::kReady) return end_execution(x, ErrorCode::kUnreachable);
  // This attempt is among the active ones already.
  if (active_on(c.worker_id.value) > worker->info.slots_total) end_execution(x, ErrorCode::kWorkerBusy);
}

void World::obey(const AbortExecute& c) {
  SimExecution& x = executions_.at(c.execution.value);
  x.aborted = true;
  if (const auto it = in_flight_.find(c.execution.value); it != in_flight_.end()) it->second.aborted_ms = now_.mono_ms;
  if (!x.ended && !x.deaf) end_execution(x, ErrorCode::kCancelled);
}

void World::obey(const StartWorker& c) {
  check_start(c);
  const base::WorkerId id(c.request.worker_id);
  gpu_of_[id.value] = c.request.gpu_id;
  const bool wanted = std::any_of(known_.begin(), known_.end(), [&](const auto& item) {
    const jobs::JobSpec& spec = item.second.spec;
    return spec.model.model_ref == c.request.model_ref && item.second.finishes == 0 &&
           scheduling::tier_of(spec.placement, c.pool_id, c.request.gpu_id) != scheduling::Tier::kExcluded;
  });
  if (!wanted) violate("a start for nobody on " + c.pool_id.value);
  SimPool* pool = pool_at(c.endpoint);
  const auto answer = [&](std::optional<base::Error> error) { tell("", StartWorkerAnswered{id, std::move(error)}); };
  if (!pool || (!pool->reachable && chance(50))) return answer(base::Error{ErrorCode::kUnreachable, "sim", {}});
  const std::string digest = "sha256:" + c.request.model_ref.substr(6);
  const auto gpu = std::find_if(pool->base.gpus.begin(), pool->base.gpus.end(),
                                [&](const auto& g) { return g.gpu_id == c.request.gpu_id; });
  std::int64_t used = bytes_of(digest);
  for (const auto& [worker_id, w] : pool->workers) used += w.info.gpu_id == c.request.gpu_id ? w.bytes : 0;
  if (used > gpu->vram_total_bytes) {
    ++seen["start refused"];
    return answer(base::Error{ErrorCode::kInsufficientVram, "sim", {}});
  }
  pool->workers[id.value] = {.info = {.worker_id = id.value,
                                      .model_ref = c.request.model_ref,
                                      .model_digest = digest,
                                      .gpu_id = c.request.gpu_id,
                                      .status = WorkerStatus::kStarting,
                                      .slots_total = c.request.slots,
                                      .context_length = 1000,
                                      .engine_build = fmt::format("build-{}", pool->build),
                                      .kv_dtype = "f16"},
                             .bytes = bytes_of(digest)};
  ++seen["start"];
  // The start happened, but its answer may be lost with the connection.
  if (!pool->reachable) return answer(base::Error{ErrorCode::kUnreachable, "sim", {}});
  answer(std::nullopt);
}

void World::obey(const ReviewQueue& c) {
  ++seen["queue reviewed"];
  const bool aborts = chance(20);
  tell("", QueueReviewed{queue_optimizer::review(c.snapshot, [&] { return aborts && chance(50); })});
}

void World::obey(const StopWorker& c) {
  if (const auto it = starts_.find(c.worker_id.value); it != starts_.end()) it->second.second = true;
  SimPool* pool = pool_at(c.endpoint);
  if (!pool || !pool->reachable) return;
  const auto it = pool->workers.find(c.worker_id.value);
  if (it == pool->workers.end()) return;
  it->second.draining = true;
  ++seen["stop"];
}

void World::obey(const AskPoolState& c) {
  SimPool* pool = pool_at(c.endpoint);
  if (!pool || !pool->reachable) return tell("", PoolUnreachable{c.endpoint});
  tell("", PoolSeen{{}, state_of(*pool), c.endpoint});
}

// ---- the checker ----------------------------------------------------------------------------------------------------

void World::expire_in_flight() {
  std::erase_if(in_flight_, [&](const auto& item) {
    return item.second.aborted_ms && now_.mono_ms >= *item.second.aborted_ms + config_.timeout.cancellation_deadline_ms;
  });
}

// What the brain learns with this event.
void World::before_event(const Event& event) {
  expire_in_flight();
  const auto settle = [&](const std::string& worker_id) {
    if (const auto it = starts_.find(worker_id); it != starts_.end()) it->second.second = true;
  };
  if (const auto* e = std::get_if<ExecuteEnded>(&event)) {
    if (const auto it = in_flight_.find(e->execution.value); it != in_flight_.end()) {
      if (e->error && retry::is_transient(e->error->code)) known_.at(it->second.job_id.value).retried = true;
      if (e->error && e->error->code == ErrorCode::kCancelled) known_.at(it->second.job_id.value).retried = true;
      in_flight_.erase(it);
    }
  } else if (const auto* committed = std::get_if<Committed>(&event)) {
    for (auto& [id, k] : known_) k.committed_told |= rows_.contains(id);
    seen["commits"] += static_cast<std::int64_t>(committed->commits.size());
  } else if (const auto* answered = std::get_if<StartWorkerAnswered>(&event)) {
    if (answered->error) settle(answered->worker_id.value);
  } else if (const auto* ready = std::get_if<WorkerReady>(&event)) {
    settle(ready->ready.worker.worker_id);
  } else if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
    settle(failed->failed.worker_id);
  } else if (const auto* pool = std::get_if<PoolSeen>(&event)) {
    std::set<std::string> starting;
    for (const auto& w : pool->state.workers) {
      if (w.status == WorkerStatus::kStarting) starting.insert(w.worker_id);
    }
    for (auto& [id, start] : starts_) {
      if (start.first.find("@" + pool->state.pool_id + "/") != std::string::npos && !starting.contains(id))
        start.second = true;
    }
  }
}

void World::check_execute(const Execute& c) {
  Known& k = known_.at(c.job_id.value);
  if (!rows_.contains(c.job_id.value) || !(k.committed_told || k.restored))
    violate("execute before commit: " + c.job_id.value);
  if (k.sealed || k.finishes > 0 || contract::is_terminal(k.told)) violate("execute after the end: " + c.job_id.value);
  std::int64_t on_worker = 0;
  for (const auto& [id, f] : in_flight_) {
    if (f.job_id == c.job_id) violate("two attempts at once: " + c.job_id.value);
    on_worker += f.worker_id == c.worker_id;
  }
  if (on_worker >= config_.worker_slots) violate("more attempts than slots on " + c.worker_id.value);
  const auto accepts = [&](const jobs::JobSpec& spec) {
    return scheduling::tier_of(spec.placement, c.pool_id, gpu_of_[c.worker_id.value]) != scheduling::Tier::kExcluded;
  };
  if (!accepts(k.spec)) violate(fmt::format("{} runs where it must not", c.job_id.value));
  if (!scheduling::is_anywhere(k.spec.placement)) ++seen["placed by wish"];
  // FIFO inside (class, model) among those that accept the worker, first attempts of this life only.
  if (!k.dispatched && !k.retried && !k.restored) {
    for (const auto& [id, other] : known_) {
      const bool same = other.spec.priority == k.spec.priority && other.spec.model.digest == k.spec.model.digest &&
                        other.spec.tenant_id == k.spec.tenant_id &&
                        (!builds_change_ || other.spec.placement == k.spec.placement);
      const bool waits = other.accepted && !other.dispatched && !other.retried && !other.restored &&
                         other.finishes == 0 && !contract::is_terminal(other.told);
      if (same && waits && accepts(other.spec) && other.order < k.order)
        violate(fmt::format("{} overtook {}", c.job_id.value, id));
    }
  }
  k.dispatched = true;
  ++seen["execute"];
}

void World::check_start(const StartWorker& c) {
  const std::string key = fmt::format("{}@{}/{}", c.request.model_ref, c.pool_id.value, c.request.gpu_id);
  for (const auto& [id, start] : starts_) {
    if (start.first == key && !start.second) violate("two starts in flight: " + key);
  }
  if (!starts_.emplace(c.request.worker_id, std::pair(key, false)).second) violate("worker id used twice");
}

// No more faults: everything accepted must come to its end in bounded time.
void World::heal() {
  healing_ = true;
  for (SimPool& pool : pools_) pool.reachable = true;
  for (auto& [id, x] : executions_) x.deaf = false;
  const auto open = [&] {
    return !writes_.empty() || std::any_of(rows_.begin(), rows_.end(),
                                           [](const auto& row) { return !contract::is_terminal(row.second.status); });
  };
  std::int64_t next_report_ms = now_.mono_ms;
  const std::int64_t give_up_ms = now_.mono_ms + 4 * 3600 * 1000;
  while ((open() || !messages_.empty()) && violation_.empty() && now_.mono_ms < give_up_ms) {
    if (now_.mono_ms >= next_report_ms) {
      for (SimPool& pool : pools_) report(pool);
      next_report_ms = now_.mono_ms + 15'000;
    }
    commit_writes(false);
    deliver_all();
    for (int i = 0; i < 8; ++i) worker_action(true);
    deliver_all();
    commit_writes(false);
    deliver_all();
    const std::int64_t next_ms = std::clamp<std::int64_t>(brain_->next_wakeup_ms() - now_.mono_ms, 1, 1000);
    now_.mono_ms += next_ms;
    now_.unix_ms += next_ms;
    feed(Tick{});
  }
  check_end();
}

void World::check_end() {
  for (const auto& [id, k] : known_) {
    const auto row = rows_.find(id);
    if (k.accepted && row == rows_.end()) violate("an accepted job has no row: " + id);
    if (row == rows_.end()) continue;
    if (!contract::is_terminal(row->second.status)) violate("never ended: " + id);
    if (row->second.terminal_writes != 1)
      violate(fmt::format("{} terminal rows of {}", row->second.terminal_writes, id));
    // A crash between the terminal row and Finish leaves the telling to the store.
    if (k.finishes == 0 && lives_ == 1) violate("nobody was told: " + id);
  }
  if (violation_.empty()) return;
  feed(QueryPools{{++requests_}});  // for the transcript
  feed(QueryJobs{{++requests_}});
}

}  // namespace llorch::orchestratord::brain
