#include "sim/world/pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "net/http/error_response.h"
#include "sim/world/api.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"
#include "text/test_vocabularies.h"
#include "text/tokenizer_data.h"
#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::sim {

namespace wl = pool_managerd::worker_lifecycle;
namespace reg = pool_managerd::registration;
using base::Error;
using base::ErrorCode;

namespace {

constexpr std::int64_t kDeviceRefreshMs = 5'000;
constexpr std::int64_t kProbeTimeoutMs = 5'000;
constexpr std::int64_t kLinkTimeoutMs = 5'000;
constexpr std::size_t kFirstPort = 1'024;
constexpr std::int64_t kContextTokens = 1'000;

}  // namespace

Pool::Pool(World& world, std::size_t index)
    : world_(world),
      index_(index),
      pool_id_(fmt::format("pool-{}", index)),
      endpoint_("http://" + pool_id_),
      process_{.name = pool_id_, .host = 1 + static_cast<int>(index)},
      entropy_(world.options.seed * 31 + index + 1) {
  for (const DeviceOptions& device : world.options.pools[index].devices) devices_.push_back({.options = device});
}

// ---- the process ----------------------------------------------------------------------------------------------------

void Pool::start() {
  process_.start();
  const Options& o = world_.options;
  life_ = std::make_unique<Life>(wl::LifecycleConfig{.pool_id = pool_id_,
                                                     .start_timeout_ms = o.worker_start_timeout_ms,
                                                     .health_interval_ms = o.health_interval_ms,
                                                     .drain_grace_ms = o.drain_grace_ms,
                                                     .workers_per_gpu = o.core.workers_per_gpu},
                                 entropy_, reg::RegistrationConfig{});
  life_->boot_id = fmt::format("{}-boot-{}", pool_id_, process_.life);
  life_->build = world_.draw_build();
  life_->started_ms = world_.loop.now_ms();
  next_wake_ms_ = -1;
  world_.trace("pool starts", pool_id_, static_cast<std::int64_t>(process_.life));
  refresh_devices();
  link(reg::Started{});
}

void Pool::crash() {
  if (!process_.alive) return;
  world_.trace("pool crashes", pool_id_);
  process_.alive = false;
  world_.network.died(process_);
  for (WorkerProcess* worker : workers()) {
    world_.oracle.reached("pool crashed with workers");
    worker->kill();  // parent-death signal
  }
  world_.loop.at(world_.loop.now_us() + world_.dice_processes.between(50, 5'000) * kMs, [this] { start(); });
}

void Pool::lose_device(std::size_t device, std::int64_t for_ms) {
  Device& lost = devices_[device];
  lost.lost_until_ms = world_.loop.now_ms() + for_ms;
  if (lost.used_bytes > 0) world_.oracle.reached("device lost with workers on it");
  for (const WorkerProcess* worker : workers()) {
    const bool shared = worker->devices().size() > 1 && worker->is_on(std::to_string(device));
    if (shared) world_.oracle.reached("shared worker lost a device");
  }
}

void Pool::heal() {
  for (Device& device : devices_) device.lost_until_ms = 0;
}

std::vector<WorkerProcess*> Pool::workers() const {
  std::vector<WorkerProcess*> out;
  for (const auto& worker : processes_) {
    if (worker->running()) out.push_back(worker.get());
  }
  return out;
}

WorkerProcess* Pool::find(const std::string& worker) const {
  for (const auto& process : processes_) {
    if (process->id() == worker && process->running()) return process.get();
  }
  return nullptr;
}

// ---- devices --------------------------------------------------------------------------------------------------------

bool Pool::healthy(const Device& device) const { return world_.loop.now_ms() >= device.lost_until_ms; }

std::set<std::size_t> Pool::devices_of(const WorkerProcess& worker) const {
  std::set<std::size_t> devices;
  for (const std::string& gpu_id : worker.devices()) devices.insert(static_cast<std::size_t>(std::stoul(gpu_id)));
  return devices;
}

bool Pool::is_well(const WorkerProcess& worker) const {
  return std::ranges::all_of(devices_of(worker), [this](std::size_t i) { return healthy(devices_[i]); });
}

std::vector<pool_managerd::gpu_inventory::Device> Pool::read_devices() const {
  std::vector<pool_managerd::gpu_inventory::Device> out;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const Device& d = devices_[i];
    pool_managerd::gpu_inventory::Device seen{.gpu_id = std::to_string(i), .total_bytes = d.options.bytes};
    if (d.options.reports_free) seen.free_bytes = d.options.bytes - d.used_bytes;
    seen.healthy = healthy(d);
    if (!seen.healthy) seen.fault = "simulated";
    out.push_back(std::move(seen));
  }
  return out;
}

void Pool::refresh_devices() {
  step(wl::DevicesRead{read_devices()});
  check_lost();
  world_.loop.post(process_, kDeviceRefreshMs * kMs, [this] { refresh_devices(); });
}

// With a device go the workers that span it.
void Pool::check_lost() {
  for (const WorkerProcess* worker : workers()) {
    if (worker->pool_life() != process_.life || worker->told_to_go() || is_well(*worker)) continue;
    world_.oracle.violate(fmt::format("{} outlives a device of its own on {}", worker->id(), pool_id_));
  }
}

void Pool::allocated(const WorkerProcess& worker) {
  for (const std::size_t i : devices_of(worker)) {
    Device& device = devices_[i];
    const std::string gpu_id = std::to_string(i);
    device.used_bytes += worker.held_bytes_on(gpu_id);
    if (device.used_bytes <= device.options.bytes) continue;
    // A budget without a driver behind it cannot see what a dead daemon's workers still hold.
    bool others = false;
    for (const auto& process : processes_) {
      others |= process->pool_life() != worker.pool_life() && process->held_bytes_on(gpu_id) > 0;
    }
    if (device.options.reports_free || !others) {
      world_.oracle.violate(fmt::format("{} of {} bytes are allocated on {}/{}", device.used_bytes,
                                        device.options.bytes, pool_id_, gpu_id));
    }
  }
  check_memory();
}

void Pool::freed(const WorkerProcess& worker) {
  for (const std::size_t i : devices_of(worker)) devices_[i].used_bytes -= worker.held_bytes_on(std::to_string(i));
}

void Pool::check_memory() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    std::int64_t held = 0;
    for (const auto& worker : processes_) {
      if (worker->pool_life() == process_.life) held += worker->held_bytes_on(std::to_string(i));
    }
    const std::int64_t accounted = life_->lifecycle.allocated_bytes(std::to_string(i));
    if (held > accounted || accounted > devices_[i].options.bytes) {
      world_.oracle.violate(fmt::format("{}/{}: {} bytes held, {} accounted, {} there", pool_id_, i, held, accounted,
                                        devices_[i].options.bytes));
    }
  }
}

// ---- the lifecycle core ---------------------------------------------------------------------------------------------

wl::RequestId Pool::remember(std::function<void(MaybeError)> reply) {
  const wl::RequestId id{++life_->requests_count};
  life_->requests.emplace(id, std::move(reply));
  return id;
}

void Pool::start_worker(const wire::StartWorkerRequest& wanted, const HttpReplyPtr& reply) {
  // Reading the model's header takes a moment, on a thread of its own.
  world_.loop.post(
      process_, world_.dice_processes.between(1, 30) * kMs,
      [this, wanted = wire::StartWorkerRequest(wanted), reply]() mutable {
        auto devices = wire::devices_of(wanted.gpu_id);
        if (world_.options.bug == InjectedBug::kFirstDeviceOnly) {
          life_->known[wanted.worker_id].mask = std::exchange(wanted.gpu_id, devices.front());
          devices.resize(1);
        }
        pool_managerd::model_catalog::ModelPlan plan;
        plan.shape = {.context_tokens = kContextTokens, .slots = wanted.slots, .kv_dtype = wanted.kv_dtype};
        const auto& model = world_.options.models[static_cast<std::size_t>(world_.model_of(wanted.model_ref))];
        plan.memory.assign(devices.size(), {.weights_bytes = model.bytes});
        link(reg::Heard{});
        step(wl::DevicesRead{read_devices()});
        const auto answered = [reply, worker = wanted.worker_id](const MaybeError& error) {
          if (error) return reply->respond(net::http::error_response(*error, {}));
          reply->respond(net::http::json_response(202, wire::encode(wire::StartWorkerReply{worker, "starting"})));
        };
        step(wl::StartAsked{remember(answered), wanted, plan, {}});
      });
}

void Pool::stop_worker(const std::string& worker, const HttpReplyPtr& reply) {
  link(reg::Heard{});
  life_->known[worker].stop_asked = true;
  const auto answered = [reply, worker](const MaybeError& error) {
    if (error) return reply->respond(net::http::error_response(*error, {}));
    reply->respond(net::http::json_response(202, wire::encode(wire::WorkerStatusReply{worker, "stopping"})));
  };
  step(wl::StopAsked{remember(answered), base::WorkerId(worker), false});
}

void Pool::describe(const net::http::Target& target, const HttpReplyPtr& reply) const {
  wire::ModelFacts facts{.model_ref = target.query.at("ref")};
  const auto& model = world_.options.models[static_cast<std::size_t>(world_.model_of(facts.model_ref))];
  facts.digest = model_digest_of(model.name);
  facts.context_length = kContextTokens;
  facts.slots = std::stoll(target.query.at("slots"));
  facts.memory_bytes = model.bytes;
  const auto devices = target.query.find("devices");
  facts.devices = devices == target.query.end() ? 1 : std::stoll(devices->second);
  reply->respond(net::http::json_response(200, wire::encode(facts)));
}

void Pool::serve(HttpRequest request, const HttpReplyPtr& reply) {
  static const std::string tokenizer = text::serialize(text::byte_bpe_data({})).value();
  const auto target = net::http::parse_target(request.target).value();
  if (target.path == "/v2/state") {
    link(reg::Heard{});
    return reply->respond(net::http::json_response(200, wire::encode(state())));
  }
  if (target.path == "/v2/models/describe") return describe(target, reply);
  if (target.path.ends_with("/tokenizer")) return reply->respond({200, {}, tokenizer});
  if (target.path == "/v2/workers/start") {
    return start_worker(wire::decode<wire::StartWorkerRequest>(request.body).value(), reply);
  }
  ASSERT(target.path == "/v2/workers/stop", "{}", target.path);
  stop_worker(wire::decode<wire::StopWorkerRequest>(request.body)->worker_id, reply);
}

void Pool::worker_ready(const wire::ReadyCallback& callback, Reply<bool> reply) {
  step(wl::ReadyReceived{remember([reply = std::move(reply)](const MaybeError& error) { reply(!error); }), callback});
}

void Pool::worker_exited(const WorkerProcess& worker, const wl::ExitFacts& facts) {
  if (!process_.alive || worker.pool_life() != process_.life) return;
  world_.loop.post(process_, world_.dice_processes.below(5 * kMs), [this, id = worker.id(), facts] {
    if (!life_->lifecycle.worker(base::WorkerId(id))) return;  // an injected bug has said so before
    step(wl::Exited{base::WorkerId(id), facts});
    world_.loop.post(process_, world_.dice_processes.between(1, 20) * kMs, [this] {
      step(wl::DevicesRead{read_devices()});
      link(reg::Changed{});
    });
  });
}

wire::PoolState Pool::state() {
  const base::Time now = world_.loop.now(process_);
  return {.pool_id = pool_id_,
          .endpoint = endpoint_,
          .timestamp_ms = now.unix_ms,
          .uptime_seconds = (now.mono_ms - life_->started_ms) / 1000,
          .sequence = ++life_->reports_count,
          .boot_id = life_->boot_id,
          .gpus = life_->lifecycle.gpus(),
          .workers = life_->lifecycle.workers()};
}

void Pool::step(const wl::Event& event) {
  std::vector<wl::Command> commands;
  life_->lifecycle.step(event, world_.loop.now(), commands);
  for (const wl::Command& command : commands) {
    std::visit([this](const auto& c) { execute(c); }, command);
  }
  check_memory();
  arm();
}

void Pool::execute(const wl::Answer& c) {
  const auto node = life_->requests.extract(c.request);
  node.mapped()(std::nullopt);
}

void Pool::execute(const wl::Refuse& c) {
  const auto node = life_->requests.extract(c.request);
  node.mapped()(c.error);
}

WorkerProcess* Pool::spawn(const wl::Spawn& c) {
  world_.oracle.reached("worker started");
  wl::Spawn spawned = c;
  if (const std::string& mask = life_->known[c.worker_id.value].mask; !mask.empty()) spawned.gpu_id = mask;
  processes_.push_back(
      std::make_unique<WorkerProcess>(world_, *this, std::move(spawned), kFirstPort + processes_.size()));
  WorkerProcess* worker = processes_.back().get();
  if (worker->devices().size() > 1) world_.oracle.reached("shared worker started");
  worker->begin();
  return worker;
}

void Pool::execute(const wl::Spawn& c) {
  if (world_.dice_processes.chance(world_.faults().spawn_fails)) {
    world_.oracle.reached("worker could not be spawned");
    return step(wl::SpawnFailed{c.worker_id, {ErrorCode::kWorkerStartFailed, "no process", {}}});
  }
  const auto devices = wire::devices_of(c.gpu_id);
  for (WorkerProcess* other : workers()) {
    const bool there = std::ranges::any_of(devices, [&](const auto& gpu_id) { return other->is_on(gpu_id); });
    if (there && other->model() == world_.model_of(c.model_ref) && other->loading() && !other->hung()) {
      world_.oracle.violate(fmt::format("two loads of {} on {}/{}", c.model_ref, pool_id_, c.gpu_id));
    }
  }
  world_.trace("worker spawns", c.worker_id.value);
  const WorkerProcess* worker = spawn(c);
  if (world_.options.bug == InjectedBug::kSpawnTwice) spawn(c);
  step(wl::Spawned{base::WorkerId(worker->id()), 1'000 + static_cast<std::int64_t>(processes_.size())});
}

void Pool::execute(const wl::Probe& c) {
  WorkerProcess* worker = find(c.worker_id.value);
  const auto ended = [this, id = c.worker_id, probe = c.probe](const CallResult<wire::WorkerHealth>& health) {
    std::optional<wire::WorkerHealth> answer;
    if (health) answer = *health;
    if (answer && answer->slots_free == 0 && world_.options.bug == InjectedBug::kStopBusyWorkers) answer.reset();
    int& misses = life_->known[id.value].misses;
    misses = health ? 0 : misses + 1;
    step(wl::ProbeEnded{id, probe, answer});
  };
  if (worker == nullptr) {
    return world_.loop.post(process_, kMs, [ended] { ended(tl::unexpected(CallError::kUnreachable)); });
  }
  call<wire::WorkerHealth>(
      world_.network, process_, worker->process(), kProbeTimeoutMs,
      [worker](const Reply<wire::WorkerHealth>& reply) { reply(worker->health()); }, ended);
}

void Pool::execute(const wl::PostShutdown& c) {
  WorkerProcess* worker = find(c.worker_id.value);
  if (worker == nullptr) return;
  call<bool>(
      world_.network, process_, worker->process(), kLinkTimeoutMs,
      [worker](const Reply<bool>& reply) {
        reply(true);
        worker->shut_down();
      },
      [](const CallResult<bool>&) {});
  if (world_.options.bug == InjectedBug::kFreeMemoryAtSignal) step(wl::Exited{c.worker_id, {.exit_code = 0}});
}

void Pool::execute(const wl::SendSignal& c) {
  WorkerProcess* worker = find(c.worker_id.value);
  if (worker == nullptr) return;
  const bool first_is_well = healthy(devices_[static_cast<std::size_t>(std::stoul(worker->devices().front()))]);
  if (world_.options.bug == InjectedBug::kOutlivesItsDevice && first_is_well && !is_well(*worker)) return;
  world_.trace(c.kill == wl::Kill::kKill ? "SIGKILL" : "SIGTERM", worker->id());
  const Known& known = life_->known[worker->id()];
  const bool start_over = worker->started_ms() + world_.options.worker_start_timeout_ms <= world_.loop.now_ms();
  const auto info = life_->lifecycle.worker(c.worker_id);
  if (info && info->uri.empty() && start_over) world_.oracle.reached("worker start timed out");
  if (known.misses >= 3) world_.oracle.reached("worker hung and was killed");
  if (!known.stop_asked && !start_over && known.misses < 3 && is_well(*worker)) {
    world_.oracle.violate("a worker is killed that works: " + worker->id());
  }
  c.kill == wl::Kill::kKill ? worker->kill() : worker->terminate();
  if (world_.options.bug == InjectedBug::kFreeMemoryAtSignal) step(wl::Exited{c.worker_id, {.exit_code = 0}});
}

void Pool::execute(const wl::ReportReady& c) { link(reg::Queue{c.report}); }
void Pool::execute(const wl::ReportFailed& c) { link(reg::Queue{c.report}); }
void Pool::execute(const wl::PushState&) { link(reg::Changed{}); }
void Pool::execute(const wl::Note&) {}

// ---- the registration core ------------------------------------------------------------------------------------------

void Pool::link(const reg::Event& event) {
  if (world_.options.bug == InjectedBug::kNeverRegisters) return;
  std::vector<reg::Command> commands;
  life_->registration.step(event, world_.loop.now(), commands);
  for (const reg::Command& command : commands) {
    std::visit([this](const auto& c) { send(c); }, command);
  }
  arm();
}

void Pool::send(const reg::SendRegister&) {
  // The state as it is now travels; the answer may come to a later one.
  ask_api(world_, process_,
          {.caller = node_principal(pool_id_), .path = "/v2/pools/register", .body = wire::encode(state())},
          [this](const ApiAnswer& answer) { link(reg::RegisterEnded{decoded<wire::RegisterReply>(answer)}); });
}

void Pool::send(const reg::SendHeartbeat&) {
  ask_api(world_, process_,
          {.caller = node_principal(pool_id_),
           .path = fmt::format("/v2/pools/{}/heartbeat", pool_id_),
           .body = wire::encode(state())},
          [this](const ApiAnswer& answer) { link(reg::HeartbeatEnded{decoded<wire::HeartbeatReply>(answer)}); });
}

void Pool::send(const reg::SendReport& c) {
  const auto* ready = std::get_if<wire::WorkerReady>(&c.report);
  const std::string body =
      ready != nullptr ? wire::encode(*ready) : wire::encode(std::get<wire::WorkerFailed>(c.report));
  ask_api(world_, process_,
          {.caller = node_principal(pool_id_),
           .path = ready != nullptr ? "/v2/internal/workers/ready" : "/v2/internal/workers/failed",
           .body = body},
          [this](const ApiAnswer& answer) {
            link(reg::ReportEnded{answer ? base::Result<>{} : base::Result<>(base::fail(answer.error()))});
          });
}

// Pools crash here, they do not leave.
void Pool::send(const reg::SendDeregister&) {}
void Pool::send(const reg::ConnectionChanged&) {}

// ---- time -----------------------------------------------------------------------------------------------------------

void Pool::arm() {
  std::optional<std::int64_t> next = life_->lifecycle.next_wake_ms();
  if (const auto other = life_->registration.next_wake_ms(); other && (!next || *other < *next)) next = other;
  if (!next || (wakes_ != 0 && next_wake_ms_ == *next)) return;
  next_wake_ms_ = *next;
  const std::int64_t delay_us = std::max<std::int64_t>(0, *next - world_.loop.now_ms()) * kMs;
  world_.loop.post(process_, delay_us, [this, ticket = ++wakes_] { wake(ticket); });
}

void Pool::wake(std::uint64_t ticket) {
  if (ticket != wakes_) return;
  next_wake_ms_ = -1;
  const auto due = [&](const std::optional<std::int64_t>& at) { return at && *at <= world_.loop.now_ms(); };
  if (due(life_->lifecycle.next_wake_ms())) step(wl::Tick{});
  if (due(life_->registration.next_wake_ms())) link(reg::Tick{});
  arm();
}

}  // namespace llorch::sim
