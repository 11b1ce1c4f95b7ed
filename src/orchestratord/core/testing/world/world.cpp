#include "orchestratord/core/testing/world/world.h"

#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/core/testing/describe.h"
#include "orchestratord/core/testing/units.h"

namespace llorch::orchestratord::core {

using base::ErrorCode;
using wire::JobStatus;

namespace {}  // namespace

World::World(const WorldOptions& options)
    : rng_(options.seed), seed_(options.seed), bug_first_device_(options.bug_first_device), entropy_(options.seed) {
  config_.decide_every_group = options.decide_every_group;
  config_.record = options.record;
  config_.queue.capacity = chance(50) ? 6 : 40;
  config_.queue.policy = static_cast<config::QueuePolicy>(pick(3));
  config_.scheduling.algorithm = static_cast<config::PlacementAlgorithm>(pick(4));
  config_.sessions.turns_max = 1000;
  config_.sessions.ttl_ms = 60'000;
  if (chance(60)) config_.sessions.token_budget = 40 + static_cast<std::int64_t>(pick(200));
  config_.queue_optimizer.threshold_jobs = static_cast<std::int64_t>(pick(6));
  config_.queue_optimizer.interval_ms = 1'000 + static_cast<std::int64_t>(pick(30'000));
  config_.worker_slots = 1 + static_cast<std::int64_t>(pick(3));
  config_.workers_per_gpu = 1 + static_cast<std::int64_t>(pick(2));
  config_.retry.max_attempts = 1 + static_cast<std::int64_t>(pick(5));
  config_.timeout.queue_ms = chance(20) ? 120'000 : 0;
  config_.restart.running_jobs = chance(10) ? config::RunningJobs::kFail : config::RunningJobs::kReplay;
  if (chance(40)) config_.quotas.max_concurrent_jobs = 1 + static_cast<std::int64_t>(pick(3));
  if (chance(30)) config_.quotas.token_budget_daily = 200 + static_cast<std::int64_t>(pick(400));
  if (seed_ % 3 == 0) config_.tenants = {{.id = "t0", .token_file = {}, .throttle = {}, .quotas = {}}};
  builds_change_ = chance(50);
  shares_ = chance(50);
  const std::size_t pool_count = 1 + pick(2);
  for (std::size_t p = 0; p < pool_count; ++p) {
    SimPool pool;
    pool.base.pool_id = fmt::format("pool-{}", p);
    pool.base.endpoint = "http://" + pool.base.pool_id;
    pool.base.boot_id = fmt::format("boot-{}", ++boots_);
    const bool cpu = shares_ && chance(15);
    const std::size_t devices = cpu ? 1 : 1 + pick(shares_ ? 4 : 2);
    for (std::size_t g = 0; g < devices; ++g) {
      pool.base.gpus.push_back({.gpu_id = cpu ? "cpu" : std::to_string(g),
                                .vram_total_bytes = (6 + static_cast<std::int64_t>(pick(6))) * kGb});
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
  held_.clear();
  heard_of_.clear();
  out_of_reach_ms_.clear();
  core_ = std::make_unique<Core>(config_, entropy_);
  Restored restored;
  for (const std::string& id : row_order_) {
    const Row& row = rows_.at(id);
    Known& k = known_.at(id);
    k.written = row.status;
    k.restored = true;
    k.sealed = false;  // an ending that did not reach the disk never happened
    if (wire::is_terminal(row.status)) continue;
    k.written = JobStatus::kQueued;
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
      if (!wire::is_terminal(row.status)) continue;
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
    if (!wire::is_terminal(row.status) || row.finished_unix_ms / kDayMs != now_.unix_ms / kDayMs) continue;
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
  core_->step(std::move(event), now_, commands);
  core_->verify();
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
  if (dice < 97) return chance(60) ? restart_pool() : turn_device();
  if (dice < 98) {
    SimPool& pool = pools_[pick(pools_.size())];
    pool.reachable = !pool.reachable;
    pool.reports = pool.reachable || chance(50);
    ++seen[pool.reachable == pool.reports ? "partition" : "one-way fault"];
    return;
  }
  if (dice < 99) {
    feed(QueryJobs{{++requests_}});
    return feed(QueryPools{{++requests_}});
  }
  if (seed_ % 3 == 1 && chance(60)) return change_limits();
  if (!chance(30)) return;
  ++seen["restart"];
  boot();
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
    row->second.terminal_writes += wire::is_terminal(record.status);
  }
  writes_.clear();
  if (fail) {
    ++seen["commit failed"];
    return tell("store", CommitFailed{commits, {ErrorCode::kIoError, "disk", {}}});
  }
  tell("store", Committed{commits});
}

// No more faults: everything accepted must come to its end in bounded time.
void World::heal() {
  healing_ = true;
  for (SimPool& pool : pools_) {
    pool.reachable = pool.reports = true;
    for (wire::GpuInfo& gpu : pool.base.gpus) gpu.healthy = true;
  }
  for (auto& [id, x] : executions_) x.deaf = false;
  const auto open = [&] {
    return !writes_.empty() || std::any_of(rows_.begin(), rows_.end(),
                                           [](const auto& row) { return !wire::is_terminal(row.second.status); });
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
    const std::int64_t next_ms = std::clamp<std::int64_t>(core_->next_wakeup_ms() - now_.mono_ms, 1, 1000);
    now_.mono_ms += next_ms;
    now_.unix_ms += next_ms;
    feed(Tick{});
  }
  check_end();
}

}  // namespace llorch::orchestratord::core
