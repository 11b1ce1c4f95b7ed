#include "pool_managerd/worker_host.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/assert.h"
#include "base/file.h"
#include "base/join.h"
#include "base/log.h"
#include "pool_managerd/gpu_inventory/host_memory.h"
#include "wire/device_mask.h"

namespace llorch::pool_managerd {

using base::LogLevel;
using worker_lifecycle::ExitFacts;
using worker_lifecycle::Kill;
using worker_lifecycle::WorkerLog;
using worker_lifecycle::WorkerProcess;

namespace {

constexpr std::size_t kWorkerLogsKept = 50;
// What an adapter needs to say that it failed, before it is killed for it.
constexpr std::int64_t kAdapterReportsMs = 5'000;
constexpr std::int64_t kContainerRetryMs = 5'000;
constexpr std::int64_t kStopLookMs = 100;
bool names_cpu(const std::string& mask) { return wire::devices_of(mask).front() == "cpu"; }

// What the worker calls its devices: it sees those of its mask and no others, numbered from 0.
std::string names_inside(const std::string& mask) {
  if (names_cpu(mask)) return mask;
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < wire::devices_of(mask).size(); ++rank) names.push_back(std::to_string(rank));
  return wire::mask_of(names);
}

// By UUID where the driver tells that of every one.
std::string visible_devices(const worker_lifecycle::Spawn& command) {
  if (names_cpu(command.gpu_id) || engines::is_engine_device(command.gpu_id)) return "";
  const bool all_told = std::ranges::none_of(command.gpu_uuids, &std::string::empty);
  return all_told ? wire::mask_of(command.gpu_uuids) : command.gpu_id;
}

// How often the kernel's memory killer has struck in our cgroup; 0 where cgroup v2 does not tell.
std::int64_t oom_kills() {
  const auto membership = base::read_file("/proc/self/cgroup", 4096);
  const auto group = membership ? gpu_inventory::parse_cgroup_path(*membership) : std::nullopt;
  if (!group) return 0;
  const auto events = base::read_file("/sys/fs/cgroup" + *group + "/memory.events", 4096);
  return events ? gpu_inventory::parse_oom_kills(*events) : 0;
}

}  // namespace

WorkerHost::WorkerHost(WorkerHostOptions options, MainLoop& loop, OnLeaving on_leaving, OnExit on_exit)
    : options_(std::move(options)),
      loop_(loop),
      on_leaving_(std::move(on_leaving)),
      on_exit_(std::move(on_exit)),
      containers_(options_.state_directory / "containers"),
      ports_(options_.bind_address, options_.ports) {}

WorkerHost::~WorkerHost() {
  leave_containers_ = true;
  container_thread_.stop();
  for (const auto& [id, worker] : running_) {
    loop_.unwatch(worker.process.exit_fd());
    loop_.unwatch(worker.process.output_fd());
  }
}

void WorkerHost::add_common(const worker_lifecycle::Spawn& c, int listener_fd, std::vector<std::string>& out) const {
  const bool has_listener = listener_fd >= 0;
  out.insert(out.end(),
             {"--worker-id", c.worker_id.value, "--model-ref", c.model_ref, "--bind", options_.bind_address,
              "--advertise", options_.advertised_host, has_listener ? "--listen-fd" : "--port",
              has_listener ? std::to_string(listener_fd) : "0", "--callback-url", options_.callback_base + "ready",
              "--shutdown-grace-ms", std::to_string(options_.shutdown_grace_ms), "--log-level", options_.log_level});
  if (options_.auth_optional_on_loopback) out.emplace_back("--auth-optional-on-loopback");
}

std::vector<std::string> WorkerHost::arguments(const worker_lifecycle::Spawn& c, int listener_fd) const {
  std::vector<std::string> out{"--model",
                               c.model.path,
                               "--gpu-device",
                               names_inside(c.gpu_id),
                               "--progress-url",
                               options_.callback_base + "progress",
                               "--context",
                               std::to_string(c.model.shape.context_tokens),
                               "--slots",
                               std::to_string(c.model.shape.slots),
                               "--kv-tokens",
                               std::to_string(c.model.shape.kv_tokens),
                               "--kv-dtype",
                               c.model.shape.kv_dtype,
                               "--image-tokens-max",
                               std::to_string(c.model.shape.image_tokens_max),
                               "--memory-budget-bytes",
                               base::join(c.memory_budget_bytes, ","),
                               "--threads",
                               std::to_string(options_.threads_count),
                               "--prefill-chunk",
                               std::to_string(c.model.prefill_chunk)};
  if (options_.repacked_bytes_max > 0) {
    out.insert(out.end(), {"--repacked-dir", options_.repacked_dir.string(), "--repacked-bytes-max",
                           std::to_string(options_.repacked_bytes_max)});
  }
  if (c.model.digest) {
    out.insert(out.end(), {"--model-digest", c.model.digest->digest, "--model-stamp", c.model.digest->stamp});
  }
  if (options_.speculation != "off" && (options_.speculation != "mtp" || c.model.predicts)) {
    out.insert(out.end(), {"--speculation", options_.speculation, "--speculation-tokens",
                           std::to_string(options_.speculation_tokens)});
  }
  add_common(c, listener_fd, out);
  if (options_.step_counters) out.emplace_back("--step-counters");
  return out;
}

std::vector<std::string> WorkerHost::adapter_arguments(const worker_lifecycle::Spawn& c, int listener_fd,
                                                       const std::optional<engines::Container>& container) const {
  std::vector<std::string> out{
      "--start-timeout-ms", std::to_string(std::max(options_.start_timeout_ms - kAdapterReportsMs, kAdapterReportsMs)),
      "--device-class", engines::is_engine_device(c.gpu_id) ? "external" : c.gpu_id};
  add_common(c, listener_fd, out);
  for (auto& argument : options_.engines->arguments(c.model_ref)) out.push_back(std::move(argument));
  const std::vector<std::string> command = options_.engines->command(c.model_ref, container);
  if (!command.empty()) out.emplace_back("--");
  out.insert(out.end(), command.begin(), command.end());
  return out;
}

base::Result<int> WorkerHost::spawn(const worker_lifecycle::Spawn& command) {
  const std::string& id = command.worker_id.value;
  ASSERT(!running_.contains(id), "{}", id);
  const auto logs = options_.state_directory / "logs";
  TRY(base::ensure_private_directory(logs));
  worker_lifecycle::prune_worker_logs(logs, kWorkerLogsKept - 1);
  const base::Descriptor listener = TRY(ports_.take());  // the worker's alone once it runs: it ends with it
  const bool foreign = engines::is_engine_ref(command.model_ref);
  const auto container = foreign ? options_.engines->container(command.model_ref, id) : std::nullopt;
  if (container) TRY(containers_.add(*container));
  worker_lifecycle::SpawnOptions spawn{
      foreign ? options_.adapter_executable : options_.executable,
      foreign ? adapter_arguments(command, listener.get(), container) : arguments(command, listener.get()),
      {},
      listener.get()};
  spawn.variables.emplace_back("LLORCH_SPAWN_TOKEN", command.spawn_token);
  spawn.variables.emplace_back("LLORCH_STATE_DIR", options_.state_directory.string());
  if (foreign) {
    for (auto& [name, value] : options_.engines->environment(command.model_ref))
      spawn.variables.emplace_back(name, value);
  }
  // The operator's token is none of a worker's business.
  spawn.variables.emplace_back("LLORCH_API_TOKEN", "");
  spawn.variables.emplace_back("LLORCH_API_TOKEN_FILE", "");
  spawn.variables.emplace_back("LLORCH_WORKER_CONTROL_TOKEN", options_.control_token);
  spawn.variables.emplace_back("LLORCH_WORKER_CALLBACK_TOKEN", options_.callback_token);
  // A worker sees its own GPUs and no other. NVML counts in the order of the bus; CUDA does only when told to.
  spawn.variables.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  spawn.variables.emplace_back("CUDA_VISIBLE_DEVICES", visible_devices(command));
  const std::int64_t oom_kills_before = oom_kills();
  auto spawned = WorkerProcess::spawn(spawn);
  if (!spawned) {
    if (container) containers_.drop(*container);
    return base::fail(spawned.error());
  }
  WorkerProcess process = std::move(*spawned);
  const int pid = process.pid();
  loop_.watch(process.output_fd(), [this, id] { read_output(id); });
  loop_.watch(process.exit_fd(), [this, id] { collect_exit(id); });
  const std::string file = (id.starts_with("worker-") ? id : "worker-" + id) + ".log";
  running_.emplace(id,
                   Running{std::move(process), std::make_unique<WorkerLog>(logs / file), oom_kills_before, container});
  return pid;
}

void WorkerHost::signal(const base::WorkerId& id, Kill kill) {
  const auto it = running_.find(id.value);
  if (it == running_.end()) return;
  if (kill == Kill::kTerm) {
    it->second.process.terminate();
  } else {
    it->second.process.kill_group();
  }
}

bool WorkerHost::is_ending(const base::WorkerId& id) const {
  const auto it = running_.find(id.value);
  return it != running_.end() && it->second.process.is_ending();
}

bool WorkerHost::serves(const base::WorkerId& id) const { return running_.contains(id.value) && !is_ending(id); }

void WorkerHost::read_output(const std::string& id) {
  const Running& worker = running_.at(id);
  const bool goes_on = worker.process.read_output([&](std::string_view bytes) { worker.log->append(bytes); });
  if (!goes_on) loop_.unwatch(worker.process.output_fd());
}

void WorkerHost::collect_exit(const std::string& id) {
  read_output(id);
  const auto it = running_.find(id);
  loop_.unwatch(it->second.process.exit_fd());
  loop_.unwatch(it->second.process.output_fd());
  ExitFacts facts = it->second.process.reap();
  std::string tail = it->second.log->tail();
  facts.host_oom_kill = facts.signal.has_value() && oom_kills() > it->second.oom_kills_before;
  facts.logged_code = worker_lifecycle::logged_error_code(tail);
  const auto container = std::move(it->second.container);
  running_.erase(it);
  std::replace(tail.begin(), tail.end(), '\n', ' ');
  auto left = [this, id, facts, tail = base::redact(tail)] { on_exit_(base::WorkerId(id), facts, tail); };
  if (!container) return left();
  on_leaving_(base::WorkerId(id));
  remove_container(*container, std::move(left));
}

void WorkerHost::remove_container(const engines::Container& container, std::function<void()> gone) {
  container_thread_.post([this, container, gone = std::move(gone)] {
    const auto stop = [this] { return leave_containers_.load(); };
    while (!stop()) {
      const auto removed = engines::remove_container(container, stop);
      if (removed) {
        containers_.drop(container);
        break;
      }
      base::log_event(LogLevel::kWarn, "container.removal", {}, "A container of an engine cannot be removed yet.",
                      {{"name", container.name}, {"message", removed.error().message}});
      for (std::int64_t waited = 0; waited < kContainerRetryMs && !stop(); waited += kStopLookMs) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kStopLookMs));
      }
    }
    loop_.post(gone);
  });
}

void WorkerHost::remove_left_containers() {
  for (const engines::Container& container : containers_.all()) {
    const auto removed = engines::remove_container(container);
    base::log_event(removed ? LogLevel::kInfo : LogLevel::kWarn, "container.left", {},
                    removed ? "A container that an earlier run of this daemon left is gone."
                            : "A container that an earlier run of this daemon left cannot be removed yet.",
                    {{"name", container.name}, {"message", removed ? "" : removed.error().message}});
    if (removed) {
      containers_.drop(container);
    } else {
      remove_container(container, [] {});
    }
  }
}

}  // namespace llorch::pool_managerd
