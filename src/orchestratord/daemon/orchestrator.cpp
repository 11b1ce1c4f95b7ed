#include "orchestratord/daemon/orchestrator.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <future>
#include <iterator>
#include <utility>

#include "base/build_id.h"
#include "base/file.h"
#include "base/file_reads.h"
#include "base/join.h"
#include "base/log.h"
#include "base/process.h"
#include "orchestratord/daemon/core_thread.h"
#include "orchestratord/daemon/live_keys.h"
#include "orchestratord/daemon/run_file.h"
#include "orchestratord/daemon/shell.h"
#include "orchestratord/models/known_models.h"
#include "orchestratord/pool_access/pool_access.h"
#include "orchestratord/store/postgres_store.h"
#include "orchestratord/store/sqlite_store.h"
#include "wire/json.h"

namespace llorch::orchestratord::daemon {
namespace {

using base::ErrorCode;

constexpr std::size_t kTicksPerS = 20;
// Workers confirm an abort within 100 ms; the core gives up on one after timeout.cancellation_deadline_ms.
constexpr std::chrono::seconds kDrainTimeout{10};
constexpr std::int64_t kSlowLookMs = 1'000, kLookTooLongMs = 10'000;  // at where a path leads
constexpr std::int64_t kServerGraceMs = 500;
constexpr std::int64_t kTracePeriodMs = 250;  // with SpanExporterLimits: 1,000 jobs a second

struct BindAddress {
  std::string host;
  std::uint16_t port = 0;
};

base::Result<BindAddress> parse_bind(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  BindAddress out;
  if (colon != std::string::npos && colon > 0) {
    out.host = text.substr(0, colon);
    if (out.host.front() == '[' && out.host.back() == ']') out.host = out.host.substr(1, out.host.size() - 2);
    const char* end = text.data() + text.size();
    const auto [rest, ec] = std::from_chars(text.data() + colon + 1, end, out.port);
    if (ec == std::errc() && rest == end) return out;
  }
  return base::fail(ErrorCode::kConfigInvalid,
                    fmt::format("orchestratord.bind is '{}': must be address:port, for example 127.0.0.1:8080", text));
}

}  // namespace

// In order of dependency: what is declared later may use what is declared earlier.
struct Orchestrator::Parts {
  explicit Parts(OrchestratorOptions o) : options(std::move(o)) {}

  const OrchestratorOptions options;
  base::SystemClock clock;
  base::SystemEntropy entropy;
  bool stopped = false;
  std::promise<void> drained;
  std::optional<store::StateDirectoryLock> lock;
  std::optional<RunFile> run_file;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::blobs::BlobStore> blobs;
  std::unique_ptr<pool_access::PoolAccess> access;  // to pools, and theirs to us
  models::AllowedRoots roots;
  std::unique_ptr<models::ModelNames> names;
  std::vector<wire::KnownModel> known_models;
  std::optional<net::IoRuntime> runtime;          // sockets and timers
  std::optional<net::IoRuntime> request_runtime;  // see http::Context
  std::optional<net::IoRuntime> aside;            // long reviews of the queue
  std::optional<net::IoRuntime> files;            // reads and writes kept files
  std::optional<net::RuntimeExecutor> request_turns, aside_turns, files_turns;
  std::optional<base::FileReads> named_files, spelled_files;  // see models::ModelNames::Reads
  std::optional<http::Metrics> metrics;
  std::optional<net::Client> client;
  std::optional<traces::SpanExporter> spans;  // where the configuration names a collector
  std::optional<Shell> shell;
  std::optional<daemon::CoreThread> core;
  std::optional<net::Server> server;
  std::vector<net::http::Credential> credentials;  // of callers that the server knows now
  net::Timer hub_timer, relay_timer, trace_timer;

  base::Result<> lock_directory();
  base::Result<> open_store();  // and the two that follow
  base::Result<> open_blobs();
  base::Result<> open_names();
  void make_parts();
  void make_spans();
  base::Result<> serve();
  net::http::AuthRules with_pools(net::http::AuthRules rules) const;
  base::Result<> reload(OrchestratorOptions loaded);
  void record_run(const std::string& address);
  void stop();
};

base::Result<> Orchestrator::Parts::lock_directory() {
  lock.emplace(TRY(store::lock_state_directory(options.state_directory)));
  access = TRY(pool_access::PoolAccess::open(options.state_directory / pool_access::kFileName, entropy));
  return {};
}

// What can refuse a start comes before the migration: an older program refuses the store behind it, and a newer one that never served would
// have cut off the way back. Only what its rows say of a live job, beside placement and payload, is first read as the newer schema has it.
base::Result<> Orchestrator::Parts::open_store() {
  auto before_migration = [this]() -> base::Result<> {
    TRY(open_blobs());
    return open_names();
  };
  const config::PersistenceConfig& persistence = options.config.orchestratord.persistence;
  const store::RetentionLimits retention{.ms = persistence.retention_ms,
                                         .count_max = persistence.retention_count,
                                         .bytes_max = persistence.retention_bytes};
  if (persistence.store == config::StoreKind::kPostgresql) {
    store::PostgresStoreOptions postgres;
    postgres.conninfo = TRY(config::load_postgresql_connection(options.config));
    postgres.read_conninfo = [this] { return config::load_postgresql_connection(options.config); };
    postgres.directory = options.state_directory;
    postgres.retention = retention;
    postgres.clock = &clock;
    postgres.entropy = &entropy;
    postgres.on_taken_over = options.on_store_taken_over;
    postgres.take_over = options.take_over_store;
    postgres.before_migration = std::move(before_migration);
    postgres.check_live_job = check_live_job;
    store = TRY(store::open_postgres_store(std::move(postgres)));
    return {};
  }
  store::SqliteStoreOptions store_options;
  store_options.directory = options.state_directory;
  store_options.retention = retention;
  store_options.clock = &clock;
  store_options.entropy = &entropy;
  store_options.sqlite_vfs = options.sqlite_vfs;
  store_options.open_file = options.open_file;
  store_options.take_over = options.take_over_store;
  store_options.before_migration = std::move(before_migration);
  store_options.check_live_job = check_live_job;
  store = TRY(store::open_sqlite_store(std::move(store_options)));
  return {};
}

base::Result<> Orchestrator::Parts::open_blobs() {
  blobs = TRY(store::blobs::BlobStore::open(
      {.directory = options.state_directory / "blobs",
       .tenant_bytes_max = static_cast<std::uint64_t>(options.config.orchestratord.files.tenant_bytes_max),
       .clock = &clock},
      entropy));
  return {};
}

base::Result<> Orchestrator::Parts::open_names() {
  roots = models::allowed_roots(options.config.models, options.model_roots);
  names = TRY(models::ModelNames::open({.file = options.state_directory / models::kNamesFile,
                                        .configured = options.config.models.aliases,
                                        .roots = roots,
                                        .clock = &clock}));
  TRY(models::check_chat_formats(options.config.models));
  known_models = TRY(models::load_known_models(options.config.models.known_models));
  return {};
}

void Orchestrator::Parts::make_parts() {
  const config::OrchestratordConfig& config = options.config.orchestratord;
  runtime.emplace(net::IoPriority::kRealtime);
  request_turns.emplace(request_runtime.emplace());
  aside_turns.emplace(aside.emplace());
  files_turns.emplace(files.emplace());
  const base::FileReads::Options reads{
      .at_once = 2,
      .slow_ms = kSlowLookMs,
      .refuse_ms = kLookTooLongMs,
      .after = [this](std::int64_t delay_ms,
                      std::function<void()> fn) { request_runtime->post_after(delay_ms, std::move(fn)); },
      .reason = "MODEL_BEING_READ"};
  named_files.emplace(reads);
  spelled_files.emplace(reads);
  metrics.emplace(http::Metrics::Options{.engine_version = base::build_id(),
                                         .algorithm = std::string(wire::enum_name(config.scheduling.algorithm))});
  client.emplace(*runtime);
  make_spans();
  shell.emplace(Shell::Options{.config = &options.config,
                               .clock = &clock,
                               .entropy = &entropy,
                               .metrics = &*metrics,
                               .store = store.get(),
                               .client = &*client,
                               .access = access.get(),
                               .request_executor = &*request_turns,
                               .aside = &*aside_turns,
                               .files = &*files_turns,
                               .blobs = blobs.get(),
                               .spans = spans ? &*spans : nullptr,
                               .post = [this](core::Event event) { core->post(std::move(event)); },
                               .on_drained = [this] { drained.set_value(); },
                               .roots = roots,
                               .names = names.get(),
                               .name_reads = {.of_names = &*named_files, .of_paths = &*spelled_files},
                               .known_models = &known_models,
                               .state_directory = options.state_directory,
                               .stream_ticks_per_s = kTicksPerS});
  core.emplace(
      daemon::CoreThread::Options{.config = core::CoreConfig::from(config),
                                  .entropy = &entropy,
                                  .clock = &clock,
                                  .execute = [this](core::Command command) { shell->execute(std::move(command)); },
                                  .on_dispatch_latency = [this](double ms) { metrics->scheduling_latency_ms(ms); }});
}

void Orchestrator::Parts::make_spans() {
  const std::string& endpoint = options.config.orchestratord.tracing.otlp_endpoint;
  if (endpoint.empty()) return;
  using Outcome = traces::SpanExporter::Outcome;
  const auto count = [this](Outcome outcome, std::int64_t jobs) {
    metrics->traced(outcome == Outcome::kExported ? "exported" : "dropped", jobs);
  };
  count(Outcome::kExported, 0);  // seen before the first
  count(Outcome::kDropped, 0);
  spans.emplace(traces::SpanExporter::Options{.client = &*client,
                                              .clock = &clock,
                                              .entropy = &entropy,
                                              .endpoint = endpoint,
                                              .service_version = base::build_id(),
                                              .count = count});
  trace_timer = aside->every(kTracePeriodMs, [this] { spans->tick(); });
}

namespace {
// The pools' credentials are not among them: they come and go.
base::Result<net::http::AuthRules> auth_rules(const OrchestratorOptions& options) {
  using net::http::make_credential;
  using net::http::Role;
  net::http::AuthRules rules{.optional_on_loopback = options.config.auth.optional_on_loopback};
  if (!options.api_token.empty()) rules.credentials.push_back(TRY(make_credential(options.api_token, Role::kOperator)));
  for (const config::TenantToken& tenant : options.tenants) {
    rules.credentials.push_back(TRY(make_credential(tenant.token, Role::kTenant, tenant.tenant_id)));
  }
  for (const std::string& token : options.reader_tokens) {
    rules.credentials.push_back(TRY(make_credential(token, Role::kReader)));
  }
  return rules;
}

base::Result<net::ServerOptions> server_options_of(const OrchestratorOptions& options) {
  const config::OrchestratordConfig& config = options.config.orchestratord;
  const BindAddress bind = TRY(parse_bind(config.bind));
  net::ServerOptions out;
  out.component = "orchestratord";
  out.bind_key = "orchestratord.bind";
  out.bind_address = bind.host;
  out.port = bind.port;
  out.request_bytes_max = static_cast<std::size_t>(config.limits.request_bytes_max);
  out.request_bytes_in_flight_max = static_cast<std::size_t>(config.limits.request_bytes_in_flight_max);
  out.auth = TRY(auth_rules(options));
  out.browsers = {.hosts = config.hosts, .cors_origins = config.cors_origins, .cors_key = "orchestratord.cors_origins"};
  return out;
}

// Of those in `of`, how many have a token, or are a caller, that is not in `others`.
std::size_t count_missing(const std::vector<net::http::Credential>& of,
                          const std::vector<net::http::Credential>& others) {
  return static_cast<std::size_t>(std::ranges::count_if(of, [&](const net::http::Credential& credential) {
    return std::ranges::none_of(others, [&](const net::http::Credential& other) {
      return other.token_sha256 == credential.token_sha256 && other.principal.account == credential.principal.account &&
             other.principal.role == credential.principal.role;
    });
  }));
}
}  // namespace

base::Result<> Orchestrator::check(const OrchestratorOptions& options) {
  TRY(net::check_options(TRY(server_options_of(options))));
  if (options.config.orchestratord.persistence.store == config::StoreKind::kPostgresql) {
    TRY(config::load_postgresql_connection(options.config));
  }
  TRY(models::check_chat_formats(options.config.models));
  TRY(models::load_known_models(options.config.models.known_models));
  return {};
}

base::Result<> Orchestrator::Parts::serve() {
  net::ServerOptions server_options = TRY(server_options_of(options));
  credentials = server_options.auth.credentials;
  server_options.auth = with_pools(std::move(server_options.auth));
  server_options.begins_traces = spans.has_value();
  std::vector<http::Api::Route> routes = shell->routes();
  for (http::Api::Gateway& gateway : shell->gateways(options.config.orchestratord.gateways)) {
    std::ranges::move(gateway.routes, std::back_inserter(routes));
    std::ranges::move(gateway.paths, std::back_inserter(server_options.gateways));
  }
  server.emplace(*runtime, std::move(server_options));
  for (http::Api::Route& route : routes) {
    server->route(route.method, route.pattern, route.scope, std::move(route.handler), std::move(route.check));
  }
  TRY(server->start());
  hub_timer = runtime->every(1000 / kTicksPerS, [this] { shell->tick_streams(); });
  relay_timer = runtime->every(1000, [this] { shell->tick_relay(); });
  return {};
}

net::http::AuthRules Orchestrator::Parts::with_pools(net::http::AuthRules rules) const {
  rules.find_more = [this](const base::Sha256Digest& digest) { return access->caller_of(digest); };
  return rules;
}

base::Result<> Orchestrator::Parts::reload(OrchestratorOptions loaded) {
  TRY(check(loaded));
  const auto running = shell->live_config().get();
  const Changes changes = changes_between(*running, loaded.config);
  // What is bound stays bound: a loopback address in the file is no reason to let callers in without a token.
  loaded.config = with_callers_of(*running, loaded.config);
  net::ServerOptions server_options = TRY(server_options_of(loaded));
  TRY(net::check_options(server_options));
  if (server_options.auth.credentials.empty() && !credentials.empty()) {
    return base::fail(ErrorCode::kConfigInvalid,
                      "this configuration has no token, and callers need one now; set auth.token_file, or restart "
                      "orchestratord to serve everybody on this machine");
  }
  const std::size_t tenants = loaded.config.orchestratord.tenants.size();
  const std::vector<net::http::Credential> before = std::exchange(credentials, server_options.auth.credentials);
  shell->set_config(std::move(loaded.config));
  server->set_auth(with_pools(std::move(server_options.auth)));
  base::log_event(base::LogLevel::kInfo, "config.reloaded", {}, "orchestratord goes by its configuration as it is now.",
                  {{"changed", base::join(changes.applied, ", ")},
                   {"tenants", tenants},
                   {"tokens_added", count_missing(credentials, before)},
                   {"tokens_revoked", count_missing(before, credentials)}});
  if (!changes.left.empty()) {
    base::log_event(base::LogLevel::kWarn, "config.needs_restart", {},
                    "Keys of the configuration have changed that count from the next start on.",
                    {{"keys", base::join(changes.left, ", ")}});
  }
  return {};
}

// Only `llorch` reads the record: a disk without room for it is no reason not to serve.
void Orchestrator::Parts::record_run(const std::string& address) {
  auto written = RunFile::write(options.state_directory, address);
  if (written) {
    run_file.emplace(std::move(*written));
  } else {
    base::log_event(base::LogLevel::kError, "run_file.failed", {},
                    "Cannot record where orchestratord listens; llorch finds it by --url alone.",
                    {{"error", written.error().message}});
  }
}

base::Result<std::unique_ptr<Orchestrator>> Orchestrator::open(OrchestratorOptions options) {
  TRY(check(options));
  const BindAddress bind = TRY(parse_bind(options.config.orchestratord.bind));
  std::unique_ptr<Orchestrator> self(new Orchestrator(std::make_unique<Parts>(std::move(options))));
  Parts& parts = *self->parts_;
  TRY(parts.lock_directory());
  TRY(parts.open_store());
  auto state = TRY(parts.store->restore());
  LiveRequests requests = TRY(read_live_jobs(state));
  parts.make_parts();
  const std::size_t restored_count = state.jobs.size();
  parts.core->start(parts.shell->restore(std::move(state), std::move(requests)));
  parts.shell->resume();  // before anybody asks for what an earlier process has begun
  TRY(parts.serve());
  const bool is_ipv6 = bind.host.find(':') != std::string::npos;
  self->bind_ = is_ipv6 ? fmt::format("[{}]:{}", bind.host, parts.server->port())
                        : fmt::format("{}:{}", bind.host, parts.server->port());
  parts.record_run(self->bind_);
  base::log_event(
      base::LogLevel::kInfo, "listening", {}, "orchestratord serves.",
      {{"bind", self->bind_}, {"restored_jobs", restored_count}, {"realtime_io", parts.runtime->is_realtime()}});
  return self;
}

base::Result<> Orchestrator::pair_pool(OrchestratorOptions options, const base::PoolId& pool_id,
                                       const std::filesystem::path& file) {
  Parts parts(std::move(options));
  TRY(parts.lock_directory());
  const auto held = TRY(config::load_pool_credential(file));
  if (held && held->pool_id() == pool_id && parts.access->is_paired(*held)) return {};
  TRY(parts.open_store());
  const config::PoolCredential credential = TRY(parts.access->pair(pool_id));
  // Where the pool was with the credential of before is not where this one is for.
  std::promise<base::Result<>> forgotten;
  parts.store->forget_pool(pool_id, [&](base::Result<> result) { forgotten.set_value(std::move(result)); });
  base::Result<> outcome = forgotten.get_future().get();
  parts.store->stop();
  TRY(outcome);
  return config::store_pool_credential(file, credential);
}

base::Result<> Orchestrator::take_over_store(OrchestratorOptions options) {
  options.take_over_store = true;
  Parts parts(std::move(options));
  TRY(parts.lock_directory());
  TRY(parts.open_store());
  parts.store->stop();
  return {};
}

Orchestrator::Orchestrator(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Orchestrator::~Orchestrator() { stop(); }

base::Result<> Orchestrator::reload(OrchestratorOptions loaded) { return parts_->reload(std::move(loaded)); }

void Orchestrator::stop() {
  if (parts_) parts_->stop();
}

void Orchestrator::Parts::stop() {
  if (std::exchange(stopped, true)) return;
  if (shell) {
    shell->begin_stop();
    auto done = drained.get_future();
    core->post(core::Shutdown{.grace_ms = 0});
    done.wait_for(kDrainTimeout);
  }
  hub_timer.cancel();
  relay_timer.cancel();
  trace_timer.cancel();
  if (shell) shell->abort_clients();
  if (server) server->stop(kServerGraceMs);
  for (auto* reads : {&named_files, &spelled_files}) {
    if (*reads) (*reads)->stop();
  }
  if (core) core->stop();
  if (shell) shell->end_stop();
  // Late answers of the store still reach handlers, and these the client: it goes after everything that may use it.
  if (store) store->stop();
  if (request_runtime) request_runtime->stop();
  if (aside) aside->stop();
  if (files) files->stop();
  if (runtime) runtime->stop();
  client.reset();
  run_file.reset();
  // Calls that their threads never came to hold streams, which report to the hub of the shell as they go, so they go before it. Nobody
  // posts any more: all that does has ended above, and what goes below posts nothing.
  files.reset();
  aside.reset();
  request_runtime.reset();
}

}  // namespace llorch::orchestratord::daemon
