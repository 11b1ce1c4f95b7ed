// What happens by itself: jobs come, workers live and die, pools report.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "orchestratord/core/testing/world/shelf.h"
#include "orchestratord/core/testing/world/world.h"
#include "wire/device_mask.h"

namespace llorch::orchestratord::core {

using base::ErrorCode;
using wire::JobStatus;
using wire::WorkerStatus;

void World::submit() {
  const bool shared = shares_ && chance(40);
  const std::size_t of_one = chance(3) ? kHuge : pick(kOfOneDevice);
  const ModelOnShelf& m = kShelf[shared ? kShared + pick(kShelf.size() - kShared) : of_one];
  jobs::JobSpec spec{.job_id = base::JobId(fmt::format("j{}", ++submissions_)),
                     .model = facts(m),
                     .priority = chance(40) ? wire::Priority::kBatch : wire::Priority::kInteractive,
                     .tokens_in = 10,
                     .max_tokens = 20};
  if (chance(40)) spec.session_id = base::SessionId(fmt::format("s{}", pick(3)));
  if (chance(10)) spec.deadline_ms = 20'000 + static_cast<std::int64_t>(pick(100'000));
  if (chance(10)) spec.timeout_ms = 5'000 + static_cast<std::int64_t>(pick(60'000));
  if (chance(30)) spec.placement = placement(m);
  spec.tenant_id = fmt::format("t{}", pick(2));
  known_[spec.job_id.value] = {.spec = spec, .order = submissions_};
  feed(Submit{{++requests_}, std::move(spec)});
}

wire::Placement World::placement(const ModelOnShelf& model) {
  const SimPool& sim = pools_[pick(pools_.size())];
  const std::string pool = sim.base.pool_id;
  switch (pick(4)) {
    case 0: return {.mode = wire::PlacementMode::kPin, .pin_pool_id = pool};
    case 1: return {.mode = wire::PlacementMode::kPrefer, .prefer_pools = {pool}, .allow_fallback = chance(50)};
    case 2: return {.avoid_pools = {pool}};
    default: return {.require_device_mask = mask(sim, model)};
  }
}

// Of any of its devices, in any order.
std::string World::mask(const SimPool& pool, const ModelOnShelf& model) {
  if (model.devices == 1) return std::to_string(pick(2));
  std::vector<std::string> gpu_ids;
  for (const auto& gpu : pool.base.gpus) gpu_ids.push_back(gpu.gpu_id);
  while (std::ssize(gpu_ids) > model.devices) gpu_ids.erase(gpu_ids.begin() + static_cast<int>(pick(gpu_ids.size())));
  if (gpu_ids == std::vector<std::string>{"cpu"}) gpu_ids.resize(static_cast<std::size_t>(model.devices), "cpu");
  if (chance(30)) std::reverse(gpu_ids.begin(), gpu_ids.end());
  return wire::mask_of(gpu_ids);
}

void World::cancel() {
  if (submissions_ == 0) return;
  const base::JobId id(fmt::format("j{}", 1 + pick(submissions_)));
  std::optional<RequestId> request;
  if (chance(70)) request = RequestId{++requests_};
  feed(CancelRequested{request, id, jobs::CancelReason::kClientRequest});
  ++seen["cancel"];
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
               WorkerFailed{
                   {.worker_id = id, .pool_id = pool.base.pool_id, .category = wire::FailureCategory::kExplicitStop}},
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
          w.info.vram_bytes = std::accumulate(w.bytes.begin(), w.bytes.end(), std::int64_t{0});
          if (w.devices.size() > 1 && chance(80)) w.info.vram_bytes_by_device = w.bytes;
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

// As a reload of the configuration, or a restart with another one, has it.
void World::change_limits() {
  const auto some = [this](std::int64_t least, std::uint64_t more) {
    return chance(50) ? 0 : least + static_cast<std::int64_t>(pick(more));
  };
  config_.quotas = {.max_concurrent_jobs = some(1, 3), .token_budget_daily = some(200, 400)};
  config_.throttle = {.requests_per_second = static_cast<double>(some(1, 4))};
  config_.tenants.clear();
  for (const char* id : {"t0", "t1"}) {
    if (!chance(40)) continue;
    config_.tenants.push_back({.id = id, .token_file = {}, .throttle = {}, .quotas = {}});
    if (chance(50)) config_.tenants.back().quotas = config::TenantQuotaConfig{.max_concurrent_jobs = some(1, 3)};
  }
  config_.former_tenants = config_.quotas;
  config_.former_tenants->max_concurrent_jobs = 1;
  ++seen["limits changed"];
  feed(SetLimits{.throttle = config_.throttle,
                 .quotas = config_.quotas,
                 .tenants = config_.tenants,
                 .former_tenants = config_.former_tenants});
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
    tell_client(x);
    return tell(source, ExecuteProgress{x.command.execution, x.tokens});
  }
  end_execution(x, std::nullopt);
}

void World::tell_client(const SimExecution& x) {
  if (!x.held && x.tokens > 0) known_.at(x.command.job_id.value).told = true;
}

void World::end_execution(SimExecution& x, std::optional<ErrorCode> error) {
  x.ended = true;
  ExecuteEnded e{.execution = x.command.execution, .tokens_out = x.tokens, .end = {}, .error = {}};
  if (error) {
    e.error = base::Error{*error, "sim", {}};
  } else {
    e.end = wire::EndEvent{.job_id = x.command.job_id.value, .tokens_in = 10, .tokens_out = x.tokens};
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

// A device falls off its bus, and takes with it what it is a part of; or it comes back.
void World::turn_device() {
  SimPool& pool = pools_[pick(pools_.size())];
  wire::GpuInfo& gpu = pool.base.gpus[pick(pool.base.gpus.size())];
  gpu.healthy = !gpu.healthy;
  if (gpu.healthy) return;
  ++seen["device lost"];
  std::vector<std::string> lost;
  for (const auto& [id, w] : pool.workers) {
    if (!w.is_on(gpu.gpu_id)) continue;
    lost.push_back(id);
    if (w.devices.size() > 1) ++seen["shared worker lost a device"];
  }
  for (const std::string& id : lost) {
    drop_worker(pool, id);
    tell("",
         WorkerFailed{
             {.worker_id = id, .pool_id = pool.base.pool_id, .gpu_id = gpu.gpu_id, .error_code = "WORKER_RESET"}},
         true);
  }
}

bool World::SimWorker::is_on(const std::string& gpu_id) const { return std::ranges::count(devices, gpu_id) > 0; }

std::int64_t World::SimWorker::bytes_on(const std::string& gpu_id) const {
  std::int64_t sum = 0;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) sum += devices[rank] == gpu_id ? bytes[rank] : 0;
  return sum;
}

wire::PoolState World::state_of(const SimPool& pool) const {
  wire::PoolState s = pool.base;
  s.timestamp_ms = now_.unix_ms;
  s.uptime_seconds = now_.mono_ms / 1000;
  for (wire::GpuInfo& gpu : s.gpus) {
    std::int64_t loaded = 0;
    for (const auto& [id, w] : pool.workers) {
      if (!w.is_on(gpu.gpu_id)) continue;
      if (bug_first_device_ && w.devices.front() != gpu.gpu_id) {
        gpu.vram_total_bytes += w.bytes_on(gpu.gpu_id);  // as if nothing of it lay here
        continue;
      }
      loaded += w.info.vram_bytes > 0 ? w.bytes_on(gpu.gpu_id) : 0;  // counted once ready, as pool-managerd does
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
  if (!pool.reports) return;
  std::optional<RequestId> request;
  if (!pool.reachable || chance(50)) request = RequestId{++requests_};
  tell("", PoolSeen{request, state_of(pool), {}, now_.mono_ms}, true);
}

World::SimPool* World::pool_at(const std::string& endpoint) {
  for (SimPool& pool : pools_) {
    if (pool.base.endpoint == endpoint) return &pool;
  }
  return nullptr;
}

}  // namespace llorch::orchestratord::core
