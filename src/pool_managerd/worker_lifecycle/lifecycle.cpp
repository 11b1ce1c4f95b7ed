#include "pool_managerd/worker_lifecycle/lifecycle.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/assert.h"
#include "base/sha256.h"
#include "net/http/auth.h"
#include "net/http/url.h"
#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::pool_managerd::worker_lifecycle {

using base::Error;
using base::ErrorCode;
using base::WorkerId;
using wire::FailureCategory;

namespace {

constexpr std::size_t kGoneIdsMax = 1024;
constexpr std::size_t kWorkerIdBytesMax = 64;

std::string new_spawn_token(base::Entropy& entropy) {
  std::array<std::uint8_t, 32> bytes;
  entropy.fill(std::as_writable_bytes(std::span(bytes)));
  return base::to_hex(bytes);
}

// What makes two start requests the same one.
bool same_request(const wire::StartWorkerRequest& a, const wire::StartWorkerRequest& b) {
  return a.model_ref == b.model_ref && a.gpu_id == b.gpu_id && a.context_tokens == b.context_tokens &&
         a.slots == b.slots && a.kv_tokens == b.kv_tokens && a.kv_dtype == b.kv_dtype &&
         a.image_tokens_max == b.image_tokens_max;
}

std::string status_name(WorkerStatus status) { return std::string(wire::enum_name(status)); }

// The reported bytes by rank. REQUIRES: check_ready() found nothing.
std::vector<std::int64_t> bytes_by_rank(const wire::ReadyCallback& callback) {
  return callback.vram_bytes_by_device.empty() ? std::vector{callback.vram_bytes} : callback.vram_bytes_by_device;
}

// What the memory is for adds up to what it is, on every device; a worker may also tell nothing of it.
base::Result<> check_memory(const wire::ReadyCallback& callback, const std::vector<std::int64_t>& bytes) {
  const std::vector<wire::DeviceMemory>& told = callback.memory_by_device;
  bool adds_up = told.empty() || told.size() == bytes.size();
  for (std::size_t rank = 0; adds_up && rank < told.size(); ++rank) {
    const auto& [weights, cache, workspace] = told[rank];
    adds_up = weights >= 0 && weights <= bytes[rank] && cache >= 0 && cache <= bytes[rank] - weights &&
              workspace == bytes[rank] - weights - cache;
  }
  if (adds_up) return {};
  return base::fail(Error{
      ErrorCode::kInvalidParams,
      "memory_by_device must name every device of the worker, each with parts that add up to its bytes",
      {}}.with("field", std::string("memory_by_device")));
}

Error worker_not_found() {
  return Error{
      ErrorCode::kWorkerNotFound, "no worker here has this id; it may have exited already: ask GET /v2/state", {}};
}

}  // namespace

bool may_become(WorkerStatus from, WorkerStatus to) {
  switch (to) {
    case WorkerStatus::kStarting: return false;
    case WorkerStatus::kReady: return from == WorkerStatus::kStarting || from == WorkerStatus::kBusy;
    case WorkerStatus::kBusy: return from == WorkerStatus::kReady;
    case WorkerStatus::kDraining: return from == WorkerStatus::kReady || from == WorkerStatus::kBusy;
    case WorkerStatus::kFailed: return from != WorkerStatus::kFailed;
  }
  return false;
}

bool Lifecycle::Worker::is_on(const std::string& gpu_id) const {
  return std::ranges::any_of(shares, [&](const Share& share) { return share.gpu_id == gpu_id; });
}

std::int64_t Lifecycle::Worker::bytes() const {
  std::int64_t sum = 0;
  for (const Share& share : shares) sum += share.bytes;
  return sum;
}

Lifecycle::Lifecycle(LifecycleConfig config, base::Entropy& entropy) : config_(std::move(config)), entropy_(entropy) {}

void Lifecycle::step(const Event& event, Time now, std::vector<Command>& out) {
  std::visit([&](const auto& e) { on(e, now, out); }, event);
}

// ---- devices and accounting ----

const gpu_inventory::Device* Lifecycle::device(const std::string& gpu_id) const {
  const auto it = std::find_if(devices_.begin(), devices_.end(), [&](const auto& d) { return d.gpu_id == gpu_id; });
  return it == devices_.end() ? nullptr : &*it;
}

gpu_inventory::DeviceUse Lifecycle::use_of(const std::string& gpu_id) const {
  gpu_inventory::DeviceUse use;
  for (const auto& [id, worker] : workers_) {
    for (const Share& share : worker.shares) {
      if (share.gpu_id != gpu_id) continue;
      use.allocated_bytes += share.bytes;
      if (!worker.became_ready) use.starting_bytes += share.bytes;
    }
  }
  return use;
}

std::int64_t Lifecycle::workers_on(const std::string& gpu_id) const {
  return std::count_if(workers_.begin(), workers_.end(), [&](const auto& w) { return w.second.is_on(gpu_id); });
}

std::vector<wire::WorkerInfo> Lifecycle::workers() const {
  std::vector<wire::WorkerInfo> out;
  for (const auto& [id, worker] : workers_) out.push_back(worker.info);
  return out;
}

std::optional<wire::WorkerInfo> Lifecycle::worker(const WorkerId& id) const {
  const auto it = workers_.find(id.value);
  return it == workers_.end() ? std::nullopt : std::optional(it->second.info);
}

// ---- start ----

base::Result<std::vector<std::int64_t>> Lifecycle::admit(const StartAsked& event) const {
  const auto& wanted = event.wanted;
  if (shutting_down_) return base::fail(ErrorCode::kShuttingDown, "this pool manager is stopping and starts no worker");
  if (!base::is_valid_identifier(wanted.worker_id, kWorkerIdBytesMax)) {
    return base::fail(
        Error{ErrorCode::kInvalidParams, "worker_id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -", {}}.with(
            "field", std::string("worker_id")));
  }
  if (gone_.contains(wanted.worker_id)) {
    return base::fail(ErrorCode::kConflict, "a worker with this id has already lived and exited; choose a new id");
  }
  const std::vector<std::string> mask = wire::devices_of(wanted.gpu_id);
  std::vector<capability_matcher::Candidate> by_rank;
  for (const std::string& gpu_id : mask) {
    const auto* target = device(gpu_id);
    if (target == nullptr) {
      std::string known;
      for (const auto& d : devices_) known += known.empty() ? d.gpu_id : ", " + d.gpu_id;
      return base::fail(Error{
          ErrorCode::kGpuUnavailable,
          fmt::format("this host has no device {}; its devices are: {}{}", gpu_id, known,
                      gpu_id == "cpu" ? " (the CPU reference device needs --cpu)" : ""),
          {}}.with("gpu_id", gpu_id));
    }
    by_rank.push_back({target, use_of(gpu_id), workers_on(gpu_id)});
  }
  TRY(check_not_loading(wanted, mask));
  if (!event.model) return base::fail(event.model.error());
  if (event.model->memory.size() != mask.size()) {
    return base::fail(Error{
        ErrorCode::kInvalidParams,
        fmt::format("the model runs on {} device(s) and gpu_id names {}", event.model->memory.size(), mask.size()),
        {}}.with("field", std::string("gpu_id")));
  }
  return capability_matcher::preflight(*event.model, by_rank, {.workers_per_gpu = config_.workers_per_gpu});
}

// A start that was late on its way meets the one that replaced it: the same bytes are never loaded twice at once.
base::Result<> Lifecycle::check_not_loading(const wire::StartWorkerRequest& wanted,
                                            const std::vector<std::string>& mask) const {
  for (const auto& [id, worker] : workers_) {
    if (worker.info.status != WorkerStatus::kStarting || worker.info.model_ref != wanted.model_ref) continue;
    const auto shared = std::ranges::find_if(mask, [&w = worker](const auto& gpu_id) { return w.is_on(gpu_id); });
    if (shared == mask.end()) continue;
    return base::fail(Error{
        ErrorCode::kConflict,
        fmt::format("a worker is loading this model on device {} already; wait until it is ready", *shared),
        {}}.with("reason", std::string("MODEL_LOADING"))
                          .with("gpu_id", *shared)
                          .with("worker_id", id));
  }
  return {};
}

void Lifecycle::on(const StartAsked& event, Time now, Out& out) {
  if (const auto it = workers_.find(event.wanted.worker_id); it != workers_.end()) {
    if (same_request(it->second.wanted, event.wanted)) {
      const wire::StartWorkerReply reply{event.wanted.worker_id, status_name(it->second.info.status)};
      out.push_back(Answer{event.request, 200, wire::encode(reply)});
    } else {
      out.push_back(
          Refuse{event.request,
                 Error{ErrorCode::kConflict, "a worker with this id exists with another model, device or shape", {}}});
    }
    return;
  }
  const auto admitted = admit(event);
  if (!admitted) {
    ++counters_.starts_by_outcome["refused"];
    if (const auto left_out = refused_starts_.admit(now.mono_ms)) {
      out.push_back(Note{.event = "worker_start_refused",
                         .warn = true,
                         .human = admitted.error().message,
                         .gpu_id = event.wanted.gpu_id,
                         .correlation_id = event.correlation_id,
                         .left_out = *left_out});
    }
    out.push_back(Refuse{event.request, admitted.error()});
    return;
  }
  start(event, *admitted, now, out);
}

void Lifecycle::start(const StartAsked& event, const std::vector<std::int64_t>& grants, Time now, Out& out) {
  const auto& plan = *event.model;
  Worker worker;
  worker.wanted = event.wanted;
  worker.info.worker_id = event.wanted.worker_id;
  worker.info.model_ref = event.wanted.model_ref;
  worker.info.gpu_id = event.wanted.gpu_id;
  worker.info.status = WorkerStatus::kStarting;
  worker.info.started_at = base::rfc3339(now.unix_ms);
  worker.info.slots_total = plan.shape.slots;
  worker.info.context_length = plan.shape.context_tokens;
  worker.info.kv_dtype = plan.shape.kv_dtype;
  worker.info.image_tokens_max = plan.shape.image_tokens_max;
  std::vector<std::string> uuids;
  for (const std::string& gpu_id : wire::devices_of(event.wanted.gpu_id)) {
    uuids.push_back(device(gpu_id)->uuid);
    worker.shares.push_back({gpu_id, grants[worker.shares.size()]});
  }
  worker.info.device_class = device(worker.shares.front().gpu_id)->device_class;
  worker.spawn_token = new_spawn_token(entropy_);
  worker.correlation_id = event.correlation_id;
  worker.model_path = plan.path;
  worker.digest_told = plan.digest;
  worker.started_mono_ms = now.mono_ms;
  worker.deadline_ms = now.mono_ms + config_.start_timeout_ms;
  worker.start_request = event.request;
  if (const auto failed = failed_last_.extract({event.wanted.model_ref, event.wanted.gpu_id})) {
    ++counters_.restarts_by_reason[failed.mapped()];
  }
  out.push_back(Spawn{.worker_id = WorkerId(event.wanted.worker_id),
                      .model_ref = event.wanted.model_ref,
                      .gpu_id = event.wanted.gpu_id,
                      .gpu_uuids = std::move(uuids),
                      .spawn_token = worker.spawn_token,
                      .model = plan,
                      .memory_budget_bytes = grants,
                      .correlation_id = event.correlation_id});
  workers_.emplace(event.wanted.worker_id, std::move(worker));
}

void Lifecycle::on(const Spawned& event, Time, Out& out) {
  Worker& worker = workers_.at(event.worker_id.value);
  worker.info.pid = event.pid;
  const wire::StartWorkerReply reply{event.worker_id.value, status_name(worker.info.status)};
  out.push_back(Answer{*worker.start_request, 202, wire::encode(reply)});
  worker.start_request.reset();
  out.push_back(Note{.event = "worker_started",
                     .human = "A worker process starts.",
                     .worker_id = event.worker_id,
                     .gpu_id = worker.info.gpu_id,
                     .bytes = worker.bytes(),
                     .correlation_id = worker.correlation_id});
  out.push_back(PushState{});
}

void Lifecycle::on(const SpawnFailed& event, Time, Out& out) {
  const auto it = workers_.find(event.worker_id.value);
  ASSERT(it != workers_.end() && it->second.start_request);
  ++counters_.starts_by_outcome["failed"];
  out.push_back(Refuse{*it->second.start_request, event.error});
  workers_.erase(it);
}

// ---- ready ----

base::Result<const Lifecycle::Worker*> Lifecycle::starting_worker(const std::string& worker_id,
                                                                  const std::string& spawn_token) const {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return base::fail(worker_not_found());
  const Worker& worker = it->second;
  if (!net::http::constant_time_equal(spawn_token, worker.spawn_token)) {
    return base::fail(ErrorCode::kForbidden, "the spawn token is not the one this worker was started with");
  }
  if (worker.info.status != WorkerStatus::kStarting || worker.ready_request) {
    return base::fail(Error{ErrorCode::kConflict, "the worker is not waiting to become ready", {}}.with(
        "status", status_name(worker.info.status)));
  }
  return &worker;
}

base::Result<> Lifecycle::check_ready(const wire::ReadyCallback& callback) const {
  const Worker& worker = *TRY(starting_worker(callback.worker_id, callback.spawn_token));
  const std::vector<std::int64_t> bytes = bytes_by_rank(callback);
  const auto invalid = [&worker] {
    return base::fail(Error{
        ErrorCode::kInvalidParams,
        fmt::format("vram_bytes_by_device must name the {} devices of the worker, and add up to vram_bytes",
                    worker.shares.size()),
        {}}.with("field", std::string("vram_bytes_by_device")));
  };
  if (bytes.size() != worker.shares.size()) return invalid();
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    const Share& share = worker.shares[rank];
    if (bytes[rank] < 0) return invalid();
    if (bytes[rank] <= share.bytes) continue;
    return base::fail(Error{
        ErrorCode::kInsufficientVram,
        fmt::format("the worker holds {} bytes of device {} and was given {}", bytes[rank], share.gpu_id, share.bytes),
        {}}.with("required_bytes", bytes[rank])
                          .with("available_bytes", share.bytes)
                          .with("gpu_id", share.gpu_id));
  }
  if (std::reduce(bytes.begin(), bytes.end()) != callback.vram_bytes) return invalid();
  TRY(check_memory(callback, bytes));
  TRY(net::http::parse_url(callback.uri));
  return {};
}

void Lifecycle::on(const ReadyReceived& event, Time now, Out& out) {
  const auto it = workers_.find(event.callback.worker_id);
  if (it != workers_.end() && it->second.became_ready && it->second.info.uri == event.callback.uri &&
      net::http::constant_time_equal(event.callback.spawn_token, it->second.spawn_token)) {
    out.push_back(Answer{event.request, 200, wire::encode(wire::ReadyReply{"ready"})});
    return;
  }
  if (auto checked = check_ready(event.callback); !checked) {
    if (const auto left_out = refused_callbacks_.admit(now.mono_ms)) {
      out.push_back(
          Note{.event = "worker_ready_refused", .warn = true, .human = checked.error().message, .left_out = *left_out});
    }
    out.push_back(Refuse{event.request, std::move(checked).error()});
    return;
  }
  Worker& worker = it->second;
  worker.ready_request = event.request;
  worker.ready = event.callback;
  worker.info.uri = event.callback.uri;
  probe(worker, out);  // POOL-2060: ready only if the uri answers
}

void Lifecycle::on(const ProgressReceived& event, Time, Out& out) {
  const auto& progress = event.progress;
  if (const auto worker = starting_worker(progress.worker_id, progress.spawn_token); !worker) {
    out.push_back(Refuse{event.request, worker.error()});
    return;
  }
  auto& percent = workers_.at(progress.worker_id).info.load_percent;
  out.push_back(Answer{event.request, 200, wire::encode(wire::ReadyReply{status_name(WorkerStatus::kStarting)})});
  if (percent && *percent >= progress.percent) return;  // calls overtake each other
  percent = progress.percent;
  out.push_back(PushState{});
}

void Lifecycle::become_ready(Worker& worker, Time now, Out& out) {
  const auto& callback = worker.ready;
  const std::vector<std::int64_t> bytes = bytes_by_rank(callback);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) worker.shares[rank].bytes = bytes[rank];
  worker.became_ready = true;
  worker.info.load_percent.reset();
  worker.info.vram_bytes = callback.vram_bytes;
  if (bytes.size() > 1) worker.info.vram_bytes_by_device = bytes;
  worker.info.memory_by_device = callback.memory_by_device;
  worker.info.model_digest = callback.model_digest;
  worker.info.slots_total = callback.slots_total;
  worker.info.context_length = callback.context_length;
  worker.info.image_tokens_max = callback.image_tokens_max;
  worker.info.engine_build = callback.engine_build;
  worker.info.numerics = callback.numerics;
  worker.info.device_class = callback.device_class;
  worker.info.sampler = callback.sampler;
  worker.info.kv_dtype = callback.kv_dtype;
  worker.deadline_ms.reset();
  worker.next_probe_ms = now.mono_ms + config_.health_interval_ms;
  set_status(worker, WorkerStatus::kReady);
  ++counters_.starts_by_outcome["success"];
  out.push_back(Answer{*worker.ready_request, 200, wire::encode(wire::ReadyReply{"ready"})});
  worker.ready_request.reset();
  out.push_back(ReportReady{{config_.pool_id, worker.info}});
  constexpr std::string_view kPrefix = "sha256:";
  if (!callback.model_stamp.empty() && callback.model_digest.starts_with(kPrefix)) {
    engine::io::StampedDigest said{.digest = callback.model_digest.substr(kPrefix.size()),
                                   .stamp = callback.model_stamp};
    if (said != worker.digest_told)
      out.push_back(CheckDigest{WorkerId(worker.info.worker_id), worker.model_path, std::move(said)});
  }
  out.push_back(Note{.event = "worker_registered",
                     .human = "A worker is ready.",
                     .worker_id = WorkerId(worker.info.worker_id),
                     .gpu_id = worker.info.gpu_id,
                     .bytes = worker.bytes(),
                     .correlation_id = worker.correlation_id});
}

// ---- health ----

void Lifecycle::probe(Worker& worker, Out& out) {
  worker.probe = ++probes_;
  out.push_back(Probe{WorkerId(worker.info.worker_id), worker.info.uri, worker.probe});
}

void Lifecycle::on(const ProbeEnded& event, Time now, Out& out) {
  const auto it = workers_.find(event.worker_id.value);
  if (it == workers_.end() || it->second.probe != event.probe) return;
  Worker& worker = it->second;
  worker.probe = 0;
  const bool is_it = event.answer && event.answer->worker_id == worker.info.worker_id;
  if (worker.ready_request) {
    if (is_it && worker.info.status == WorkerStatus::kStarting) return become_ready(worker, now, out);
    out.push_back(Refuse{
        *worker.ready_request,
        Error{ErrorCode::kWorkerUnavailable, "GET /health at the reported uri gave no answer of this worker", {}}});
    worker.ready_request.reset();
    worker.info.uri.clear();
    return;
  }
  if (worker.info.status == WorkerStatus::kFailed) return;
  worker.next_probe_ms = now.mono_ms + config_.health_interval_ms;
  if (!is_it || event.answer->status != "healthy") {
    ++worker.misses;
    out.push_back(Note{.event = "worker_health_missed",
                       .warn = true,
                       .human = "A worker missed a health probe.",
                       .worker_id = event.worker_id,
                       .gpu_id = worker.info.gpu_id,
                       .correlation_id = worker.correlation_id});
    if (worker.misses >= config_.health_misses_max) fail_worker(worker, Cause::kHang, out);
    return;
  }
  worker.misses = 0;
  worker.info.kv_pages_total = event.answer->kv_pages_total;
  worker.info.kv_pages_used = event.answer->kv_pages_used;
  worker.info.prefix_hit_tokens = event.answer->prefix_hit_tokens;
  worker.info.prefix_miss_tokens = event.answer->prefix_miss_tokens;
  const auto status = event.answer->slots_free == 0 ? WorkerStatus::kBusy : WorkerStatus::kReady;
  if (may_become(worker.info.status, status)) set_status(worker, status);
}

// ---- stop, exit ----

void Lifecycle::on(const StopAsked& event, Time now, Out& out) {
  const auto it = workers_.find(event.worker_id.value);
  if (it == workers_.end()) {
    out.push_back(Refuse{event.request, worker_not_found()});
    return;
  }
  begin_stop(it->second, event.drain ? Cause::kDrain : Cause::kStop, now, out);
  const wire::WorkerStatusReply reply{event.worker_id.value, status_name(it->second.info.status)};
  out.push_back(Answer{event.request, event.drain ? 202 : 200, wire::encode(reply)});
}

void Lifecycle::begin_stop(Worker& worker, Cause cause, Time now, Out& out) {
  if (worker.info.status == WorkerStatus::kFailed || worker.stopping >= Stopping::kTerminated) return;
  // A repetition changes nothing, except that a stop after a drain sets a limit.
  if (worker.stopping == Stopping::kAsked && (worker.deadline_ms || cause == Cause::kDrain)) return;
  if (worker.info.status == WorkerStatus::kStarting) {  // it has no job to finish and serves no /shutdown yet
    worker.cause = cause;
    worker.stopping = Stopping::kTerminated;
    worker.deadline_ms = now.mono_ms + config_.term_grace_ms;
    set_status(worker, WorkerStatus::kFailed);
    out.push_back(SendSignal{WorkerId(worker.info.worker_id), Kill::kTerm});
    out.push_back(PushState{});
    return;
  }
  worker.cause = cause;
  // A drain may take as long as its jobs do; a stop gives them the grace.
  if (cause == Cause::kStop) worker.deadline_ms = now.mono_ms + config_.drain_grace_ms;
  if (worker.stopping == Stopping::kNo) {
    worker.stopping = Stopping::kAsked;
    set_status(worker, WorkerStatus::kDraining);
    out.push_back(PostShutdown{WorkerId(worker.info.worker_id), worker.info.uri});
    out.push_back(PushState{});
  }
}

void Lifecycle::fail_worker(Worker& worker, Cause cause, Out& out) {
  worker.cause = cause;
  worker.stopping = Stopping::kKilled;
  worker.deadline_ms.reset();
  worker.next_probe_ms.reset();
  set_status(worker, WorkerStatus::kFailed);
  out.push_back(SendSignal{WorkerId(worker.info.worker_id), Kill::kKill});
  // Jobs of a ready one go elsewhere at once. A start has ended when its report says why: its state alone would not.
  if (worker.became_ready) out.push_back(PushState{});
}

void Lifecycle::on(const Leaving& event, Time, Out& out) {
  const auto it = workers_.find(event.worker_id.value);
  ASSERT(it != workers_.end(), "{}", event.worker_id.value);
  Worker& worker = it->second;
  const bool ordered = worker.stopping != Stopping::kNo;
  worker.stopping = Stopping::kKilled;  // nothing is left to be signalled
  worker.deadline_ms.reset();
  worker.next_probe_ms.reset();
  worker.probe = 0;  // the answer to one in flight says nothing of why the worker ends
  if (ordered || worker.info.status == WorkerStatus::kFailed) return;
  set_status(worker, WorkerStatus::kFailed);
  if (worker.became_ready) out.push_back(PushState{});
}

void Lifecycle::on(const Exited& event, Time now, Out& out) {
  const auto it = workers_.find(event.worker_id.value);
  ASSERT(it != workers_.end(), "{}", event.worker_id.value);
  Worker& worker = it->second;
  if (worker.ready_request) {
    out.push_back(Refuse{*worker.ready_request, Error{ErrorCode::kWorkerReset, "the worker exited", {}}});
  }
  const Failure failure = classify(event.facts, worker.cause, !worker.became_ready);
  wire::WorkerFailed report;
  report.worker_id = event.worker_id.value;
  report.pool_id = config_.pool_id;
  report.gpu_id = worker.info.gpu_id;
  report.exit_code = event.facts.exit_code;
  report.category = failure.category;
  report.error_code = failure.error_code;
  report.error_message = failure.message;
  report.vram_released_bytes = worker.became_ready ? worker.bytes() : 0;
  report.uptime_seconds = (now.mono_ms - worker.started_mono_ms) / 1000;
  if (failure.category == FailureCategory::kExplicitStop) {
    ++counters_.stops_by_reason[worker.cause == Cause::kDrain ? "drain" : "evict"];
  } else {
    ++counters_.stops_by_reason["crash"];
    const std::string category(wire::enum_name(failure.category));
    ++counters_.failures[{category, worker.info.gpu_id}];
    if (failed_last_.size() >= kGoneIdsMax) failed_last_.clear();
    failed_last_[{worker.info.model_ref, worker.info.gpu_id}] = category;
  }
  if (!worker.became_ready) ++counters_.starts_by_outcome["failed"];
  const auto correlation_id = worker.correlation_id;
  credit(worker);
  remember_gone(it->first);
  workers_.erase(it);
  out.push_back(ReportFailed{std::move(report), correlation_id});
  out.push_back(PushState{});
}

// Its receipts would name a model that it does not run.
void Lifecycle::on(const DigestDisputed& event, Time, Out& out) {
  const auto it = workers_.find(event.worker_id.value);
  if (it == workers_.end() || it->second.info.status == WorkerStatus::kFailed) return;
  if (it->second.stopping == Stopping::kKilled) return;  // it has another cause
  out.push_back(Note{.event = "worker_digest_wrong",
                     .warn = true,
                     .human = "A worker told another digest than its model's files have.",
                     .worker_id = event.worker_id,
                     .gpu_id = it->second.info.gpu_id,
                     .correlation_id = it->second.correlation_id});
  fail_worker(it->second, Cause::kWrongDigest, out);
}

// The last reading of the driver still counts the worker's memory. Without this a device would look too small until the
// next one; starts are checked against a fresh reading in any case.
void Lifecycle::credit(const Worker& worker) {
  for (auto& d : devices_) {
    for (const Share& share : worker.shares) {
      if (share.gpu_id == d.gpu_id && d.free_bytes) d.free_bytes = std::min(d.total_bytes, *d.free_bytes + share.bytes);
    }
  }
}

void Lifecycle::on(const ShutdownAsked&, Time now, Out& out) {
  const bool again = shutting_down_;
  shutting_down_ = true;
  for (auto& [id, worker] : workers_) {
    if (!again) {
      begin_stop(worker, Cause::kStop, now, out);
    } else if (worker.stopping != Stopping::kKilled) {
      worker.stopping = Stopping::kKilled;
      worker.deadline_ms.reset();
      out.push_back(SendSignal{WorkerId(id), Kill::kKill});
    }
  }
}

// ---- timers ----

void Lifecycle::on(const Tick&, Time now, Out& out) {
  for (auto& [id, worker] : workers_) {
    if (worker.deadline_ms && now.mono_ms >= *worker.deadline_ms) {
      switch (worker.stopping) {
        case Stopping::kNo: fail_worker(worker, Cause::kStartTimeout, out); break;
        case Stopping::kAsked:
          worker.stopping = Stopping::kTerminated;
          worker.deadline_ms = now.mono_ms + config_.term_grace_ms;
          out.push_back(SendSignal{WorkerId(id), Kill::kTerm});
          break;
        case Stopping::kTerminated:
          worker.stopping = Stopping::kKilled;
          worker.deadline_ms.reset();
          out.push_back(SendSignal{WorkerId(id), Kill::kKill});
          break;
        case Stopping::kKilled: ASSERT(false, "{} has no further deadline", id); break;
      }
    }
    if (worker.next_probe_ms && now.mono_ms >= *worker.next_probe_ms && worker.probe == 0) {
      worker.next_probe_ms.reset();
      probe(worker, out);
    }
  }
}

std::optional<std::int64_t> Lifecycle::next_wake_ms() const {
  std::optional<std::int64_t> wake;
  const auto take = [&](const std::optional<std::int64_t>& at) {
    if (at && (!wake || *at < *wake)) wake = at;
  };
  for (const auto& [id, worker] : workers_) {
    take(worker.deadline_ms);
    take(worker.next_probe_ms);
  }
  return wake;
}

void Lifecycle::set_status(Worker& worker, WorkerStatus status) {
  ASSERT(may_become(worker.info.status, status), "{}: {} -> {}", worker.info.worker_id, status_name(worker.info.status),
         status_name(status));
  worker.info.status = status;
}

void Lifecycle::remember_gone(const std::string& worker_id) {
  gone_.insert(worker_id);
  gone_order_.push_back(worker_id);
  if (gone_order_.size() > kGoneIdsMax) {
    gone_.erase(gone_order_.front());
    gone_order_.pop_front();
  }
}

}  // namespace llorch::pool_managerd::worker_lifecycle
