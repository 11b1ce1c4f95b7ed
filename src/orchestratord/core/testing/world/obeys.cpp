// What the core commands is done, or not.
#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/core/placement/preference.h"
#include "orchestratord/core/testing/world/shelf.h"
#include "orchestratord/core/testing/world/world.h"
#include "wire/device_mask.h"

namespace llorch::orchestratord::core {

using base::ErrorCode;
using wire::JobStatus;
using wire::WorkerStatus;

void World::obey(const Command& command) {
  std::visit([this](const auto& c) { obey(c); }, command);
}

void World::obey(const CommitAdmission& c) { writes_.push_back({c.commit, c, {}}); }

void World::obey(const CommitTransition& c) {
  Known& k = known_.at(c.record.job_id.value);
  const bool is_repeated =
      wire::is_terminal(k.written) || k.written == JobStatus::kRunning;  // when its write has failed
  const bool again = is_repeated && k.written == c.record.status;
  const bool restored = k.written == JobStatus::kQueued && c.record.status == JobStatus::kQueued;
  if (!again && !restored && !jobs::is_legal(k.written, c.record.status))
    violate("illegal transition of " + c.record.job_id.value);
  if (!k.acknowledged && !k.restored) violate("transition before admission of " + c.record.job_id.value);
  k.written = c.record.status;
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
  if (c.event == "job.worker_too_old") ++seen["refused by an old worker"];
  if (c.event == "pool.offline") {
    const std::string& pool = std::get<std::string>(c.fields.front().value);
    std::erase_if(held_, [&](const auto& item) { return item.second.pool_id == pool; });
    heard_of_.erase(pool);
    out_of_reach_ms_.erase(pool);
  }
  const bool decided = c.event == "schedule.decided", suggested = c.event == "optimizer.suggestion";
  for (const base::LogField& f : c.fields) {
    if (decided && f.name == "outcome") ++seen["decided: " + std::get<std::string>(f.value)];
    if (decided && f.name == "reason") ++seen["reason: " + std::get<std::string>(f.value)];
    if (decided && f.name == "fallback_used" && std::get<bool>(f.value)) ++seen["fallback"];
    if (suggested && f.name == "kind") ++seen["optimizer: " + std::get<std::string>(f.value)];
  }
}

void World::obey(const ReleaseStream& c) {
  for (auto& [id, x] : executions_) {
    if (x.command.job_id != c.job_id) continue;
    x.held = false;
    tell_client(x);
    ++seen["stream released"];
  }
}

void World::obey(const SealStream& c) { known_.at(c.job_id.value).sealed = true; }

void World::obey(const Execute& c) {
  check_execute(c);
  SimExecution& x = executions_[c.execution.value];
  x.command = c;
  x.held = c.holds_stream;
  x.deaf = chance(15);
  in_flight_[c.execution.value] = {c.job_id, c.worker_id, {}};
  SimWorker* worker = nullptr;
  bool is_old = false;
  for (SimPool& pool : pools_) {
    const auto it = pool.workers.find(c.worker_id.value);
    if (it == pool.workers.end() || !pool.reachable) continue;
    worker = &it->second;
    is_old = pool.build == 1;
  }
  if (!worker || worker->info.status != WorkerStatus::kReady) return end_execution(x, ErrorCode::kUnreachable);
  // This attempt is among the active ones already.
  if (active_on(c.worker_id.value) > worker->info.slots_total) return end_execution(x, ErrorCode::kWorkerBusy);
  // Some jobs ask for what the first build does not know.
  const bool is_new = known_.at(c.job_id.value).order % 4 == 0;
  if (builds_change_ && is_old && is_new) end_execution(x, ErrorCode::kVersionMismatch);
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
           placement::tier_of(spec.placement, c.pool_id, c.request.gpu_id) != placement::Tier::kExcluded;
  });
  if (!wanted) violate("a start for nobody on " + c.pool_id.value);
  SimPool* pool = pool_at(c.endpoint);
  const auto answer = [&](std::optional<base::Error> error) { tell("", StartWorkerAnswered{id, std::move(error)}); };
  if (!pool || (!pool->reachable && chance(50))) return answer(base::Error{ErrorCode::kUnreachable, "sim", {}});
  auto refusal = start(*pool, c.request);
  // The start happened, but its answer may be lost with the connection.
  if (!refusal && !pool->reachable) refusal = base::Error{ErrorCode::kUnreachable, "sim", {}};
  answer(std::move(refusal));
}

// What pool-managerd looks at before a start.
std::optional<base::Error> World::start(SimPool& pool, const wire::StartWorkerRequest& request) {
  if (!healing_ && chance(5)) {
    ++seen["start refused: being read"];
    return base::Error{ErrorCode::kPoolUnready, "sim", {}}.with("reason", std::string("MODEL_BEING_READ"));
  }
  const auto devices = wire::devices_of(request.gpu_id);
  const ModelOnShelf& model = model_on_shelf("sha256:" + request.model_ref.substr(6));
  for (const wire::GpuInfo& gpu : pool.base.gpus) {
    std::int64_t used = model.bytes * std::ranges::count(devices, gpu.gpu_id);
    if (used == 0) continue;
    if (!gpu.healthy) return base::Error{ErrorCode::kPoolUnavailable, "sim", {}};
    for (const auto& [id, w] : pool.workers) {
      if (w.is_on(gpu.gpu_id) && w.info.status == WorkerStatus::kStarting && w.info.model_ref == request.model_ref) {
        ++seen["start refused: loading"];
        return base::Error{ErrorCode::kConflict, "sim", {}}.with("reason", std::string("MODEL_LOADING"));
      }
      used += w.bytes_on(gpu.gpu_id);
    }
    if (used <= gpu.vram_total_bytes) continue;
    ++seen["start refused"];
    return base::Error{ErrorCode::kInsufficientVram, "sim", {}};
  }
  SimWorker& worker = pool.workers[request.worker_id];
  worker = {.info = {.worker_id = request.worker_id,
                     .model_ref = request.model_ref,
                     .model_digest = facts(model).digest,
                     .gpu_id = request.gpu_id,
                     .status = WorkerStatus::kStarting,
                     .slots_total = request.slots,
                     .context_length = 1000,
                     .engine_build = fmt::format("build-{}", pool.build),
                     .kv_dtype = "f16"},
            .devices = devices,
            .bytes = {}};
  // The last ranks of a model have less of it.
  for (const std::string& gpu_id : devices) {
    const bool less = !worker.bytes.empty() && gpu_id != "cpu" && chance(50);
    worker.bytes.push_back(less ? model.bytes * 9 / 10 : model.bytes);
  }
  ++seen[devices.size() > 1 ? "start of a shared worker" : "start"];
  return std::nullopt;
}

void World::obey(const ReviewQueue& c) {
  ++seen["queue reviewed"];
  const bool aborts = chance(20);
  tell("", QueueReviewed{queue::review(c.snapshot, [&] { return aborts && chance(50); })});
}

void World::obey(const StopWorker& c) {
  if (const auto it = starts_.find(c.worker_id.value); it != starts_.end()) it->second.settled = true;
  SimPool* pool = pool_at(c.endpoint);
  if (!pool || !pool->reachable) return;
  const auto it = pool->workers.find(c.worker_id.value);
  if (it == pool->workers.end()) return;
  it->second.draining = true;
  ++seen[it->second.devices.size() > 1 ? "stop of a shared worker" : "stop"];
}

void World::obey(const AskPoolState& c) {
  SimPool* pool = pool_at(c.endpoint);
  if (!pool || !pool->reachable) return tell("", PoolUnreachable{c.endpoint, c.asked_ms});
  tell("", PoolSeen{{}, state_of(*pool), c.endpoint, c.asked_ms});
}

}  // namespace llorch::orchestratord::core
