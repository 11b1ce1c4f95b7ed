#include "pool_managerd/pool_manager.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/file.h"
#include "base/file_reads.h"
#include "base/log.h"
#include "base/process.h"
#include "base/task_thread.h"
#include "base/version.h"
#include "engine/compute/cuda/backend.h"
#include "engine/inference/repack_cache/repack_cache.h"
#include "net/client.h"
#include "net/http/url.h"
#include "net/server.h"
#include "pool_managerd/control_api/metrics.h"
#include "pool_managerd/control_api/routes.h"
#include "pool_managerd/control_api/worker_metrics.h"
#include "pool_managerd/directory_watch.h"
#include "pool_managerd/engines/engine_table.h"
#include "pool_managerd/engines/installs_at_start.h"
#include "pool_managerd/gpu_inventory/inventory.h"
#include "pool_managerd/main_loop.h"
#include "pool_managerd/model_catalog/model_catalog.h"
#include "pool_managerd/part_options.h"
#include "pool_managerd/peer_files.h"
#include "pool_managerd/provisioner/provisioner.h"
#include "pool_managerd/pull_operations.h"
#include "pool_managerd/registration/addresses.h"
#include "pool_managerd/registration/node_access.h"
#include "pool_managerd/registration/orchestrator_link.h"
#include "pool_managerd/staging/staging.h"
#include "pool_managerd/state_lock.h"
#include "pool_managerd/worker_host.h"
#include "pool_managerd/worker_lifecycle/lifecycle.h"
#include "wire/device_mask.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::pool_managerd {

namespace wl = worker_lifecycle;
using base::ErrorCode;
using base::LogLevel;
using base::WorkerId;
using net::ExchangePtr;

namespace {

constexpr std::int64_t kDeviceRefreshMs = 5'000;
constexpr std::int64_t kDirectoryLookMs = 2'000;
constexpr std::int64_t kProbeTimeoutMaxMs = 5'000;
constexpr std::int64_t kMetricsTimeoutMs = 2'000;  // of a worker; Prometheus waits for 10 s
constexpr std::int64_t kShutdownTimeoutMs = 5'000;
constexpr std::int64_t kLeaveTimeoutMs = 5'000;  // POOLREG-18050
constexpr std::int64_t kServerStopGraceMs = 500;
// A header is read in moments; of a whole file, progress is some megabytes.
constexpr std::int64_t kSlowHeaderMs = 2'000, kSlowFileMs = 10'000;
// Before orchestratord gives up waiting and takes the pool for lost.
constexpr std::int64_t kHeaderTooLongMs = 20'000;
constexpr std::int64_t kCheckAgainMs = 60'000;
// How often, and after how long each time, a process that begins to end is looked at before an answer.
constexpr int kEndingLooks = 100;
constexpr std::int64_t kEndingLookMs = 10;

net::ServerOptions server_options(const config::Config& config, const registration::NodeAccess& access) {
  const Bind bind = split_bind(config.pool_managerd.bind);
  std::vector<std::string> hosts = config.orchestratord.hosts;
  hosts.push_back(access.advertised_host);
  return {.component = "pool-managerd",
          .bind_key = "pool-managerd.bind",
          .bind_address = bind.address,
          .port = bind.port,
          .auth = access.auth,
          .browsers = {.hosts = std::move(hosts), .cors_origins = {}},
          .cuts_stalled_streams = true};  // of peers, which may never come back
}

// What the options and the files that they name come to.
struct Checked {
  registration::NodeAccess access;
  provisioner::ProvisionerOptions pulls;
};
base::Result<Checked> checked(const PoolManagerOptions& options) {
  base::SystemEntropy entropy;
  auto access = TRY(registration::node_access({.config = options.config,
                                               .bind_address = split_bind(options.config.pool_managerd.bind).address,
                                               .state_directory = options.state_directory,
                                               .api_token = options.api_token,
                                               .reader_tokens = options.reader_tokens},
                                              entropy));
  TRY(net::check_options(server_options(options.config, access)));
  auto pulls = TRY(provisioner::provisioner_options(options.config));
  return Checked{std::move(access), std::move(pulls)};
}

}  // namespace

class PoolManager::Impl {
 public:
  Impl(PoolManagerOptions options, StateLock lock, gpu_inventory::Inventory inventory, registration::NodeAccess access,
       provisioner::ProvisionerOptions pulls);
  ~Impl();

  base::Result<> open();
  std::string bind() const { return server_.url().substr(std::string_view("http://").size()); }
  void run();

 private:
  control_api::Operations operations();
  PullOperationsOptions pull_options();
  void start_worker(wire::StartWorkerRequest wanted, base::CorrelationId correlation_id, ExchangePtr exchange);
  void describe(std::string ref, model_catalog::WorkerShape shape, bool reread, ExchangePtr exchange);
  void serve_tokenizer(std::string digest, ExchangePtr exchange);
  void look_at_directories();
  base::FileReads::Options file_reads(std::size_t at_once, std::int64_t slow_ms, std::int64_t refuse_ms = 0);
  // Runs `fn` on the main thread.
  void on_main(std::function<void()> fn) { loop_.post(std::move(fn)); }
  wl::RequestId remember(ExchangePtr exchange);
  wire::PoolState state();
  void answer_state(const ExchangePtr& exchange, int looks);

  void step(const wl::Event& event);
  // Where this process reaches a worker that others reach at `uri`.
  std::string worker_url(const std::string& uri) const {
    return registration::at_host(uri, access_.local_host).value_or(uri);
  }
  void execute(const wl::Answer&);
  void execute(const wl::Refuse&);
  void execute(const wl::Spawn&);
  void execute(const wl::Probe&);
  void execute(const wl::PostShutdown&);
  void execute(const wl::SendSignal&);
  void execute(const wl::ReportReady&);
  void execute(const wl::ReportFailed&);
  void execute(const wl::CheckDigest&);
  void execute(const wl::PushState&);
  void execute(const wl::Note&);
  void on_exit(const WorkerId& id, const wl::ExitFacts& facts, const std::string& log_tail);

  void watch_stop_signals();
  void on_stop_signal();
  std::optional<std::int64_t> turn();

  PoolManagerOptions options_;
  const registration::NodeAccess access_;
  StateLock lock_;
  base::SystemClock clock_;
  base::SystemEntropy entropy_;
  const base::Time started_;
  const std::string boot_id_;
  std::int64_t reports_count_ = 0;  // states given out
  // Destroyed in reverse: first what calls, then what is called.
  MainLoop loop_;
  gpu_inventory::Inventory inventory_;
  // Shared with reads of files, which may end after everything else.
  const std::shared_ptr<engines::EngineTable> engines_;
  std::optional<engines::InstallsAtStart> installs_;
  engine::inference::repack_cache::RepackCache repack_cache_;
  const std::shared_ptr<model_catalog::ModelCatalog> catalog_;
  std::shared_ptr<provisioner::Provisioner> provisioner_;  // shared as the catalog is
  Removals removals_;
  std::optional<PeerFiles> peer_files_;
  const std::shared_ptr<DirectoryWatch> watch_;  // after the constructor only in reads of `looks_`
  std::vector<wire::WatchedModel> watched_models_;
  wl::Lifecycle lifecycle_;
  std::map<wl::RequestId, ExchangePtr> exchanges_;
  std::uint64_t requests_ = 0;
  std::string log_tail_;  // of the worker whose exit is being stepped
  net::IoRuntime runtime_;
  std::optional<registration::OrchestratorLink> link_;
  std::optional<WorkerHost> workers_;
  base::TaskThread
      driver_thread_;        // also gives starts their order: each is judged by the devices as they are behind its plan
  base::FileReads headers_;  // of models: quick; engines' installations as well
  base::FileReads files_;    // whole: slow, so that starts do not wait for them
  base::FileReads known_files_;                      // once more: a new one does not wait for them
  base::FileReads checks_;                           // of whole files as well, which nobody waits for
  base::FileReads looks_;                            // into watched directories
  const std::shared_ptr<base::FileReads> stagings_;  // of models into memory; shared, as the staging asks for them
  net::Client client_;
  net::Timer refresh_, look_;
  std::shared_ptr<staging::Staging> staging_;  // shared as the catalog is
  net::Server server_;
  int signal_fd_ = -1;
  std::atomic<bool> looking_ = false;
  bool stopping_ = false;
  std::optional<std::int64_t> leave_deadline_ms_;
};

PoolManager::Impl::Impl(PoolManagerOptions options, StateLock lock, gpu_inventory::Inventory inventory,
                        registration::NodeAccess access, provisioner::ProvisionerOptions pulls)
    : options_(std::move(options)),
      access_(std::move(access)),
      lock_(std::move(lock)),
      started_(clock_.now()),
      boot_id_(base::uuid_v4(entropy_)),
      inventory_(std::move(inventory)),
      engines_(std::make_shared<engines::EngineTable>(options_.config.pool_managerd.engines,
                                                      options_.config.pool_managerd.provisioning)),
      repack_cache_(repack_cache(options_)),
      catalog_(std::make_shared<model_catalog::ModelCatalog>(
          catalog_options(options_, inventory_.read()),
          model_catalog::make_engine_inspector(
              {.threads_count = static_cast<std::uint32_t>(worker_threads(options_.config)),
               .proposals_max = proposals_max(options_.config.pool_managerd),
               .predicts = options_.config.pool_managerd.worker_speculation == "mtp"}))),
      watch_(std::make_shared<DirectoryWatch>(DirectoryWatchOptions{
          .directories = watched_directories(options_.config),
          .check = [catalog = catalog_](const std::filesystem::path& model) { return catalog->check(model); }})),
      watched_models_(watch_->models()),
      lifecycle_(lifecycle_config(options_.config), entropy_),
      headers_(file_reads(4, kSlowHeaderMs, kHeaderTooLongMs)),
      files_(file_reads(2, kSlowFileMs)),
      known_files_(file_reads(1, kSlowFileMs)),
      checks_(file_reads(1, kSlowFileMs)),
      looks_(file_reads(1, kSlowFileMs)),
      stagings_(std::make_shared<base::FileReads>(file_reads(1, kSlowFileMs))),
      client_(runtime_),
      server_(runtime_, server_options(options_.config, access_)) {
  pulls.clock = std::make_shared<base::SystemClock>();
  pulls.check = [catalog = catalog_](const std::filesystem::path& model) { return catalog->check(model); };
  pulls.on_published = [catalog = catalog_](const std::filesystem::path& model, const std::string& digest) {
    catalog->computed(model, digest);
  };
  // Packed weights can be made again; a model that has no room cannot be had otherwise.
  repack_cache_.tidy();
  pulls.on_removed = [packed = repack_cache_](const std::string& digest) { packed.forget_model(digest); };
  pulls.make_room = [packed = repack_cache_](std::int64_t bytes) {
    const auto wanted = static_cast<std::uint64_t>(bytes);
    return packed.used_bytes() >= wanted && packed.free_up(wanted) >= wanted;
  };
  provisioner_ = provisioner::Provisioner::make(std::move(pulls));
  peer_files_.emplace(PeerFilesOptions{
      .provisioner = provisioner_.get(), .clock = &clock_, .control_token = access_.credential.control_token()});
  staging_ = std::make_shared<staging::Staging>(
      staging::StagingOptions{.bytes_max = staging_bytes(options_.config),
                              .on_change = [this] { on_main([this] { link_->changed(); }); },
                              .reads = stagings_});
}

PoolManager::Impl::~Impl() {
  refresh_.cancel();
  look_.cancel();
  installs_.reset();
  server_.stop(kServerStopGraceMs);
  peer_files_->stop();
  staging_->stop();
  catalog_->stop();
  provisioner_->stop();
  for (base::FileReads* reads : {&looks_, &checks_, &known_files_, &files_, &headers_, stagings_.get()}) reads->stop();
  driver_thread_.stop();
  loop_.drop_posted();  // requests nobody will answer go before the runtime they belong to
  exchanges_.clear();
  if (signal_fd_ >= 0) close(signal_fd_);
}

base::Result<> PoolManager::Impl::open() {
  const auto& config = options_.config;
  const model_catalog::WorkerShape shape{.context_tokens = config.orchestratord.worker_context_tokens.value_or(0),
                                         .slots = config.orchestratord.worker_slots,
                                         .kv_tokens = config.orchestratord.worker_kv_tokens,
                                         .kv_dtype = config.orchestratord.kv_dtype,
                                         .image_tokens_max = config.orchestratord.worker_image_tokens_max};
  control_api::add_routes(server_, operations(), shape);
  step(wl::DevicesRead{inventory_.read()});
  TRY(server_.start());
  const std::filesystem::path sibling = std::filesystem::path(base::executable_directory()) / "worker-orcd";
  WorkerHostOptions host;
  host.executable =
      config.pool_managerd.worker_binary.empty() ? sibling : std::filesystem::path(config.pool_managerd.worker_binary);
  host.adapter_executable = std::filesystem::path(base::executable_directory()) / "worker-adapterd";
  host.engines = &*engines_;
  installs_.emplace(config, options_.state_directory);
  host.start_timeout_ms = config.pool_managerd.worker_start_timeout_ms;
  host.state_directory = options_.state_directory;
  host.callback_base = net::http::base_url(access_.local_host, server_.port()) + "/v2/internal/workers/";
  host.bind_address = access_.bind_address;
  host.advertised_host = access_.advertised_host;
  host.ports = config::parse_port_range(config.pool_managerd.worker_ports);
  host.control_token = access_.credential.control_token();
  host.callback_token = access_.credential.worker_token();
  host.auth_optional_on_loopback = access_.auth.optional_on_loopback;
  host.threads_count = worker_threads(config);
  host.shutdown_grace_ms = config.pool_managerd.worker_drain_grace_ms;
  host.step_counters = config.pool_managerd.worker_step_counters;
  host.speculation = config.pool_managerd.worker_speculation;
  host.speculation_tokens = config.pool_managerd.worker_speculation_tokens;
  host.repacked_dir = repacked_dir(options_);
  host.repacked_bytes_max = config.models.repacked_bytes_max;
  host.log_level = config.log.level;
  workers_.emplace(
      std::move(host), loop_, [this](const WorkerId& id) { step(wl::Leaving{id}); },
      [this](const WorkerId& id, const wl::ExitFacts& facts, const std::string& tail) { on_exit(id, facts, tail); });
  workers_->remove_left_containers();
  registration::OrchestratorLinkOptions link;
  if (access_.paired) link.url = registration::orchestrator_url(config);
  link.token = access_.credential.node_token();
  link.pool_id = config.pool_managerd.pool_id;
  link.registration.heartbeat_interval_ms = config.pool_managerd.heartbeat_interval_ms;
  link_.emplace(
      std::move(link), client_, clock_, [this](std::function<void()> fn) { on_main(std::move(fn)); },
      [this] { return state(); });
  // Only `llorch` reads the record: a disk without room for it is no reason not to serve.
  if (const auto announced = lock_.announce(bind()); !announced) {
    base::log_event(LogLevel::kError, "run_file.failed", {}, "Cannot record where pool-managerd listens for llorch.",
                    {{"error", announced.error().message}});
  }
  for (const auto& device : inventory_.read()) {
    base::log_event(device.healthy ? LogLevel::kInfo : LogLevel::kWarn, "gpu_discovered", {},
                    device.healthy ? "A device is available to workers." : "No worker can run on a device.",
                    {{"gpu_id", device.gpu_id},
                     {"fault", device.fault},
                     {"model", device.model},
                     {"device_class", device.device_class},
                     {"pci_bus_id", device.pci_bus_id},
                     {"vram_total_bytes", device.total_bytes}});
  }
  if (const auto driver = inventory_.driver()) {
    base::log_event(LogLevel::kInfo, "gpu_driver", {}, "The NVIDIA driver answers.",
                    {{"driver_version", driver->driver_version}, {"cuda_driver_version", driver->cuda_driver_version}});
    refresh_ = runtime_.every(kDeviceRefreshMs, base::posts_one_at_a_time(driver_thread_, [this] {
                                on_main([this, devices = inventory_.read()] { step(wl::DevicesRead{devices}); });
                              }));
  }
  if (!config.models.watched_directories.empty()) {
    look_ = runtime_.every(kDirectoryLookMs, [this] { look_at_directories(); });
  }
  watch_stop_signals();
  return {};
}

// ---- requests ----

wl::RequestId PoolManager::Impl::remember(ExchangePtr exchange) {
  const wl::RequestId id{++requests_};
  exchanges_.emplace(id, std::move(exchange));
  return id;
}

control_api::Operations PoolManager::Impl::operations() {
  control_api::Operations out;
  out.start = [this](wire::StartWorkerRequest wanted, base::CorrelationId correlation_id, ExchangePtr exchange) {
    start_worker(std::move(wanted), std::move(correlation_id), std::move(exchange));
  };
  out.stop = [this](WorkerId id, bool drain, ExchangePtr exchange) {
    on_main([this, id, drain, exchange] {
      link_->heard();
      step(wl::StopAsked{remember(exchange), id, drain});
    });
  };
  out.ready = [this](wire::ReadyCallback callback, ExchangePtr exchange) {
    on_main([this, callback, exchange] {
      if (engines::is_engine_ref(callback.model_ref)) engines_->learned(callback.model_ref, callback.context_length);
      step(wl::ReadyReceived{remember(exchange), callback});
    });
  };
  out.progress = [this](wire::LoadProgress progress, ExchangePtr exchange) {
    on_main([this, progress, exchange] { step(wl::ProgressReceived{remember(exchange), progress}); });
  };
  out.worker = [this](WorkerId id, ExchangePtr exchange) {
    on_main([this, id, exchange] {
      const auto worker = lifecycle_.worker(id);
      if (worker) {
        exchange->respond(net::http::json_response(200, wire::encode(*worker)));
      } else {
        exchange->respond_error(
            {ErrorCode::kWorkerNotFound, "no worker here has this id; it may have exited already", {}});
      }
    });
  };
  out.state = [this](ExchangePtr exchange) {
    on_main([this, exchange] {
      link_->heard();
      answer_state(exchange, kEndingLooks);
    });
  };
  out.health = [this](ExchangePtr exchange) {
    on_main([this, exchange] {
      exchange->respond(net::http::json_response(
          200, fmt::format(R"({{"status":"{}","pool_id":"{}","registered":{},"uptime_seconds":{}}})",
                           stopping_ ? "draining" : "healthy", options_.config.pool_managerd.pool_id,
                           link_->connected(), (clock_.now().mono_ms - started_.mono_ms) / 1000)));
    });
  };
  out.metrics = [this](ExchangePtr exchange) {
    on_main([this, exchange] {
      std::string own = control_api::metrics_text({.state = state(),
                                                   .workers = lifecycle_.counters(),
                                                   .registration = link_->counters(),
                                                   .pulls = provisioner_->counters(),
                                                   .connected = link_->connected(),
                                                   .log_lines_dropped = base::log_lines_dropped()});
      std::vector<net::ClientRequest> asked;
      const auto serves = [this](const WorkerId& id) { return workers_->serves(id); };
      for (const wire::WorkerInfo& worker : control_api::asked_workers(lifecycle_.workers(), serves)) {
        net::ClientRequest request;
        request.url = worker_url(worker.uri) + "/metrics";
        request.bearer = access_.credential.control_token();
        request.timeout_ms = kMetricsTimeoutMs;
        asked.push_back(std::move(request));
      }
      control_api::ask_workers(client_, std::move(asked),
                               [exchange, own = std::move(own)](const std::vector<std::string>& texts) {
                                 exchange->respond({.status = 200,
                                                    .headers = {{"Content-Type", "text/plain; version=0.0.4"}},
                                                    .body = control_api::with_workers(own, texts)});
                               });
    });
  };
  out.describe = [this](std::string ref, model_catalog::WorkerShape shape, bool reread, ExchangePtr exchange) {
    describe(std::move(ref), std::move(shape), reread, std::move(exchange));
  };
  out.tokenizer = [this](std::string digest, ExchangePtr exchange) {
    serve_tokenizer(std::move(digest), std::move(exchange));
  };
  add_pull_operations(out, pull_options());
  return out;
}

PullOperationsOptions PoolManager::Impl::pull_options() {
  return {.provisioner = provisioner_,
          .removals = &removals_,
          .staging = staging_,
          .peer_files = &*peer_files_,
          .catalog = catalog_,
          .packed = catalog_->runs_on_cpus_alone() ? std::optional(repack_cache_) : std::nullopt,
          .files = &headers_,
          .on_main = [this](std::function<void()> fn) { on_main(std::move(fn)); },
          .workers = [this] { return lifecycle_.workers(); }};
}

base::FileReads::Options PoolManager::Impl::file_reads(std::size_t at_once, std::int64_t slow_ms,
                                                       std::int64_t refuse_ms) {
  return {.at_once = at_once,
          .slow_ms = slow_ms,
          .refuse_ms = refuse_ms,
          .after = [this](std::int64_t delay_ms,
                          std::function<void()> fn) { runtime_.post_after(delay_ms, std::move(fn)); },
          .reason = "MODEL_BEING_READ"};
}

void PoolManager::Impl::start_worker(wire::StartWorkerRequest wanted, base::CorrelationId correlation_id,
                                     ExchangePtr exchange) {
  using Plan = model_catalog::ModelPlan;
  headers_.read<Plan>(
      wanted.model_ref,
      [wanted, catalog = catalog_, engines = engines_]() -> base::Result<Plan> {
        if (engines::is_engine_ref(wanted.model_ref)) return engines->plan(wanted.model_ref);
        const auto mask = wire::devices_of(wanted.gpu_id);
        const auto device = mask.front() == "cpu" ? model_catalog::DeviceKind::kCpu : model_catalog::DeviceKind::kCuda;
        return catalog->plan(wanted.model_ref,
                             {.context_tokens = wanted.context_tokens.value_or(0),
                              .slots = wanted.slots,
                              .kv_tokens = wanted.kv_tokens,
                              .kv_dtype = wanted.kv_dtype,
                              .image_tokens_max = wanted.image_tokens_max,
                              .devices = std::ssize(mask)},
                             device);
      },
      [this, wanted, correlation_id, exchange](base::Result<Plan> plan) {
        driver_thread_.post([this, wanted, correlation_id, exchange, plan = std::move(plan)] {
          on_main([this, wanted, correlation_id, exchange, plan, devices = inventory_.read()] {
            link_->heard();
            step(wl::DevicesRead{devices});
            if (const auto refusal = refusal_of(removals_, wanted.model_ref)) {
              return void(exchange->respond_error(*refusal));
            }
            step(wl::StartAsked{remember(exchange), wanted, plan, correlation_id});
          });
        });
      });
}

void PoolManager::Impl::describe(std::string ref, model_catalog::WorkerShape shape, bool reread, ExchangePtr exchange) {
  using Facts = wire::ModelFacts;
  const bool is_engine = engines::is_engine_ref(ref);
  base::FileReads& reads = is_engine ? headers_ : reread ? known_files_ : files_;
  reads.read<Facts>(
      ref,
      [ref, is_engine, shape = std::move(shape), reread, catalog = catalog_, engines = engines_]()
          -> base::Result<Facts> { return is_engine ? engines->describe(ref) : catalog->describe(ref, shape, reread); },
      [exchange = std::move(exchange)](base::Result<Facts> facts) {
        if (facts) {
          exchange->respond(net::http::json_response(200, wire::encode(*facts)));
        } else {
          exchange->respond_error(facts.error());
        }
      });
}

void PoolManager::Impl::serve_tokenizer(std::string digest, ExchangePtr exchange) {
  using Blob = std::shared_ptr<const std::string>;
  headers_.read<Blob>(
      digest, [digest, catalog = catalog_] { return catalog->tokenizer(digest); },
      [exchange = std::move(exchange)](base::Result<Blob> blob) {
        if (blob) {
          exchange->respond({.status = 200, .headers = {{"Content-Type", "application/octet-stream"}}, .body = **blob});
        } else {
          exchange->respond_error(blob.error());
        }
      });
}

void PoolManager::Impl::look_at_directories() {
  using Found = std::vector<wire::WatchedModel>;
  if (looking_.exchange(true)) return;
  // Also where a library throws in the look, and `done` is dropped.
  const std::shared_ptr<void> looks(nullptr, [this](void*) { looking_ = false; });
  looks_.read<Found>(
      "models.watched_directories", [watch = watch_]() -> base::Result<Found> { return watch->look(); },
      [this, looks](base::Result<Found> found) {
        if (!found) return;
        on_main([this, found = *std::move(found)]() mutable {
          const bool is_as_before = std::ranges::equal(found, watched_models_, [](const auto& a, const auto& b) {
            return a.model_ref == b.model_ref && a.stamp == b.stamp;
          });
          if (is_as_before) return;
          watched_models_ = std::move(found);
          link_->changed();
        });
      });
}

// Whoever asks because a connection to a worker broke is told how the worker ended, not what it was a moment before. One that begins to
// end has ended soon, with a report that says why; one that does not has failed.
void PoolManager::Impl::answer_state(const ExchangePtr& exchange, int looks) {
  for (const wire::WorkerInfo& worker : lifecycle_.workers()) {
    const WorkerId id(worker.worker_id);
    if (worker.status == wire::WorkerStatus::kFailed || !workers_->is_ending(id)) continue;
    if (looks > 0) {
      return runtime_.post_after(kEndingLookMs, [this, exchange, looks] {
        on_main([this, exchange, looks] { answer_state(exchange, looks - 1); });
      });
    }
    if (worker.status != wire::WorkerStatus::kStarting) step(wl::Leaving{id});
  }
  exchange->respond(net::http::json_response(200, wire::encode(state())));
}

wire::PoolState PoolManager::Impl::state() {
  const base::Time now = clock_.now();
  wire::PoolState out;
  out.pool_id = options_.config.pool_managerd.pool_id;
  out.endpoint = net::http::base_url(access_.advertised_host, server_.port());
  out.version = base::kVersion;
  out.timestamp_ms = now.unix_ms;
  out.uptime_seconds = (now.mono_ms - started_.mono_ms) / 1000;
  out.boot_id = boot_id_;
  out.sequence = ++reports_count_;
  out.gpus = lifecycle_.gpus();
  out.workers = lifecycle_.workers();
  out.watched_models = watched_models_;
  out.staged_models = staging_->list();
  out.staging_bytes_max = staging_->bytes_max();
  return out;
}

// ---- the core's commands ----

void PoolManager::Impl::step(const wl::Event& event) {
  std::vector<wl::Command> commands;
  lifecycle_.step(event, clock_.now(), commands);
  for (const wl::Command& command : commands) {
    std::visit([&](const auto& c) { execute(c); }, command);
  }
}

void PoolManager::Impl::execute(const wl::Answer& command) {
  const auto node = exchanges_.extract(command.request);
  ASSERT(!node.empty());
  node.mapped()->respond(net::http::json_response(command.http_status, command.body));
}

void PoolManager::Impl::execute(const wl::Refuse& command) {
  const auto node = exchanges_.extract(command.request);
  ASSERT(!node.empty());
  node.mapped()->respond_error(command.error);
}

void PoolManager::Impl::execute(const wl::Spawn& command) {
  const auto pid = workers_->spawn(command);
  if (pid) {
    step(wl::Spawned{command.worker_id, *pid});
  } else {
    base::log_event(LogLevel::kError, "worker_start_failed", command.correlation_id, pid.error().message,
                    {{"worker_id", command.worker_id}, {"gpu_id", command.gpu_id}});
    step(wl::SpawnFailed{command.worker_id, pid.error()});
  }
}

void PoolManager::Impl::execute(const wl::Probe& command) {
  net::ClientRequest request;
  request.url = worker_url(command.uri) + "/health";
  request.bearer = access_.credential.control_token();
  request.timeout_ms = std::min(kProbeTimeoutMaxMs, options_.config.pool_managerd.worker_health_interval_ms);
  client_.request(std::move(request),
                  [this, id = command.worker_id, probe = command.probe](base::Result<net::Response> response) {
                    std::optional<wire::WorkerHealth> answer;
                    if (response) {
                      if (auto health = wire::decode<wire::WorkerHealth>(response->body)) answer = std::move(*health);
                    }
                    on_main([this, id, probe, answer = std::move(answer)] { step(wl::ProbeEnded{id, probe, answer}); });
                  });
}

void PoolManager::Impl::execute(const wl::PostShutdown& command) {
  net::ClientRequest request;
  request.method = "POST";
  request.url = worker_url(command.uri) + "/shutdown";
  request.bearer = access_.credential.control_token();
  request.timeout_ms = kShutdownTimeoutMs;
  // Whether it was heard shows in the exit; the grace period covers the rest.
  client_.request(std::move(request), [](base::Result<net::Response>) {});
}

void PoolManager::Impl::execute(const wl::SendSignal& command) { workers_->signal(command.worker_id, command.kill); }

void PoolManager::Impl::execute(const wl::ReportReady& command) { link_->report(command.report); }

void PoolManager::Impl::execute(const wl::ReportFailed& command) {
  const auto& report = command.report;
  const bool asked = report.category == wire::FailureCategory::kExplicitStop;
  base::log_event(asked ? LogLevel::kInfo : LogLevel::kError, asked ? "worker_stopped" : "worker_failed",
                  command.correlation_id, asked ? "A worker has stopped." : "A worker was lost.",
                  {{"pool_id", report.pool_id},
                   {"worker_id", report.worker_id},
                   {"gpu_id", report.gpu_id},
                   {"exit_code", report.exit_code},
                   {"category", wire::enum_name(report.category)},
                   {"error_code", report.error_code},
                   {"message", report.error_message},
                   {"vram_released_bytes", report.vram_released_bytes},
                   {"uptime_seconds", report.uptime_seconds},
                   {"last_log_lines", asked ? std::string() : log_tail_}});
  link_->report(report);
}

void PoolManager::Impl::execute(const wl::CheckDigest& command) {
  checks_.read<bool>(
      command.path, [command, catalog = catalog_] { return catalog->confirms(command.path, command.digest); },
      [this, command](base::Result<bool> confirmed) {
        if (confirmed && !*confirmed) on_main([this, id = command.worker_id] { step(wl::DigestDisputed{id}); });
        if (confirmed || confirmed.error().code != ErrorCode::kPoolUnready) return;
        runtime_.post_after(kCheckAgainMs, [this, command] { on_main([this, command] { execute(command); }); });
      });
}

void PoolManager::Impl::execute(const wl::PushState&) { link_->changed(); }

void PoolManager::Impl::execute(const wl::Note& note) {
  std::vector<base::LogField> fields{{"pool_id", options_.config.pool_managerd.pool_id},
                                     {"worker_id", note.worker_id},
                                     {"gpu_id", note.gpu_id},
                                     {"vram_allocated_bytes", note.bytes}};
  if (note.left_out > 0) fields.emplace_back("left_out_before", note.left_out);
  base::log_event(note.warn ? LogLevel::kWarn : LogLevel::kInfo, note.event, note.correlation_id, note.human,
                  std::span<const base::LogField>(fields));
}

void PoolManager::Impl::on_exit(const WorkerId& id, const wl::ExitFacts& facts, const std::string& log_tail) {
  log_tail_ = log_tail;
  step(wl::Exited{id, facts});
  // What the driver calls free still lacks the worker's memory: the next start should not have to wait for a refresh.
  driver_thread_.post([this] {
    on_main([this, devices = inventory_.read()] {
      step(wl::DevicesRead{devices});
      link_->changed();
    });
  });
  stage_again(pull_options());
}

// ---- running and stopping ----

void PoolManager::Impl::watch_stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  ASSERT(signal_fd_ >= 0, "signalfd: {}", errno);
  loop_.watch(signal_fd_, [this] { on_stop_signal(); });
}

void PoolManager::Impl::on_stop_signal() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    base::log_event(
        LogLevel::kInfo, "shutdown", {},
        stopping_ ? "A second stop signal: workers are killed." : "Stopping: workers get their grace period.",
        {{"workers_count", lifecycle_.workers().size()}});
    if (stopping_) workers_->leave_containers();
    stopping_ = true;
    step(wl::ShutdownAsked{});
  }
}

std::optional<std::int64_t> PoolManager::Impl::turn() {
  const std::int64_t now = clock_.now().mono_ms;
  const auto due = [&](const std::optional<std::int64_t>& at) { return at && *at <= now; };
  if (due(lifecycle_.next_wake_ms())) step(wl::Tick{});
  if (due(link_->next_wake_ms())) link_->tick();
  if (stopping_ && lifecycle_.empty() && !leave_deadline_ms_) {
    leave_deadline_ms_ = now + kLeaveTimeoutMs;
    link_->leave();
  }
  if (leave_deadline_ms_ && (link_->left() || due(leave_deadline_ms_))) {
    loop_.stop();
    return std::nullopt;
  }
  std::optional<std::int64_t> wake;
  for (const auto& at : {lifecycle_.next_wake_ms(), link_->next_wake_ms(), leave_deadline_ms_}) {
    if (at && (!wake || *at < *wake)) wake = at;
  }
  return wake ? std::optional(std::max<std::int64_t>(0, *wake - clock_.now().mono_ms)) : std::nullopt;
}

void PoolManager::Impl::run() {
  link_->start();
  loop_.run([this] { return turn(); });
}

// ---- the door ----

PoolManager::PoolManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PoolManager::~PoolManager() = default;

base::Result<> PoolManager::check(const PoolManagerOptions& options) {
  TRY(checked(options));
  return {};
}

base::Result<std::unique_ptr<PoolManager>> PoolManager::open(PoolManagerOptions options) {
  const auto& config = options.config;
  Checked parts = TRY(checked(options));
  auto lock = TRY(StateLock::take(options.state_directory));
  auto inventory = TRY(gpu_inventory::Inventory::open(
      {.allow_cpu = config.devices.allow_cpu,
       .cpu_memory_bytes = config.devices.cpu_memory_bytes,
       .vram_headroom_bytes = config.pool_managerd.vram_headroom_bytes,
       .nvml_library = options.nvml_library,
       .missing_kernels = engine::compute::cuda::missing_kernels,
       .external = engines::EngineTable(config.pool_managerd.engines, config.pool_managerd.provisioning).devices()},
      read_small_file));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(lock), std::move(inventory), std::move(parts.access),
                                     std::move(parts.pulls));
  TRY(impl->open());
  return std::unique_ptr<PoolManager>(new PoolManager(std::move(impl)));
}

std::string PoolManager::bind() const { return impl_->bind(); }

void PoolManager::run() { impl_->run(); }

}  // namespace llorch::pool_managerd
