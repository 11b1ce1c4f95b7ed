#pragma once
// The names, ranges and texts of every configuration key. Included by config.cpp alone.
#include <string_view>

#include "base/id.h"
#include "config/config.h"
#include "config/engine_rules.h"
#include "wire/device_mask.h"
#include "wire/field.h"

namespace llorch::wire {

using namespace config;  // NOLINT(google-build-using-namespace): field tables are specialised where their template is

template <>
struct EnumNames<QueuePolicy> {
  static constexpr auto names =
      std::array{std::pair{QueuePolicy::kReject, std::string_view("reject")},
                 std::pair{QueuePolicy::kDropLru, std::string_view("drop-lru")},
                 std::pair{QueuePolicy::kShedLowPriority, std::string_view("shed-low-priority")},
                 std::pair{QueuePolicy::kQueue, std::string_view("queue")}};
};
template <>
struct EnumNames<PlacementAlgorithm> {
  static constexpr auto names =
      std::array{std::pair{PlacementAlgorithm::kLeastLoaded, std::string_view("least-loaded")},
                 std::pair{PlacementAlgorithm::kMostVramFree, std::string_view("most-vram-free")},
                 std::pair{PlacementAlgorithm::kRoundRobin, std::string_view("round-robin")},
                 std::pair{PlacementAlgorithm::kPredictedEnd, std::string_view("predicted-end")}};
};
template <>
struct EnumNames<EvictionPolicy> {
  static constexpr auto names = std::array{std::pair{EvictionPolicy::kLru, std::string_view("lru")},
                                           std::pair{EvictionPolicy::kLfu, std::string_view("lfu")},
                                           std::pair{EvictionPolicy::kManual, std::string_view("manual")}};
};
template <>
struct EnumNames<StoreKind> {
  static constexpr auto names = std::array{std::pair{StoreKind::kSqlite, std::string_view("sqlite")},
                                           std::pair{StoreKind::kPostgresql, std::string_view("postgresql")}};
};
template <>
struct EnumNames<PayloadSpool> {
  static constexpr auto names = std::array{std::pair{PayloadSpool::kEncrypted, std::string_view("encrypted")},
                                           std::pair{PayloadSpool::kOff, std::string_view("off")}};
};
template <>
struct EnumNames<PullPolicy> {
  static constexpr auto names = std::array{std::pair{PullPolicy::kOff, std::string_view("off")},
                                           std::pair{PullPolicy::kAsk, std::string_view("ask")}};
};
template <>
struct EnumNames<ProvisioningMode> {
  static constexpr auto names = std::array{std::pair{ProvisioningMode::kExternal, std::string_view("external")},
                                           std::pair{ProvisioningMode::kSource, std::string_view("source")},
                                           std::pair{ProvisioningMode::kContainer, std::string_view("container")},
                                           std::pair{ProvisioningMode::kPackage, std::string_view("package")},
                                           std::pair{ProvisioningMode::kBinary, std::string_view("binary")}};
};
template <>
struct EnumNames<RunningJobs> {
  static constexpr auto names = std::array{std::pair{RunningJobs::kReplay, std::string_view("replay")},
                                           std::pair{RunningJobs::kFail, std::string_view("fail")}};
};

constexpr Bounds kMilliseconds{0, 1e12};
constexpr Bounds kPositiveMilliseconds{1, 1e12};

inline base::Result<> check_bind(const std::string& bind, std::string_view field) {
  const std::size_t colon = bind.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* end = bind.data() + bind.size();
    const auto [last, error] = std::from_chars(bind.data() + colon + 1, end, port);
    if (error != std::errc() || last != end) port = -1;
  }
  if (port < 0 || port > 65535) {
    return field_error(field, "bind", fmt::format("{} must be ADDRESS:PORT, e.g. 127.0.0.1:8080", field));
  }
  return {};
}

template <>
struct Table<QueueConfig> {
  using S = QueueConfig;
  static constexpr auto fields = std::tuple{
      optional("capacity", &S::capacity, "Jobs that may wait; -1 is unbounded and needs policy queue.", {-1, 1e7}),
      optional("policy", &S::policy, "What a full queue does with a newcomer."),
      optional("batch_promotion_ms", &S::batch_promotion_ms,
               "A batch job that waited this long is treated as interactive; 0 disables.", kMilliseconds),
      optional("shed_after_ms", &S::shed_after_ms,
               "While a job has waited this long, new batch jobs of its model are refused; while one has waited twice "
               "as long, all are. 0 disables.",
               kMilliseconds)};
  static base::Result<> validate(const S& q) {
    if ((q.capacity == -1) != (q.policy == QueuePolicy::kQueue)) {
      return field_error("queue", "combination",
                         "policy queue goes with capacity -1, every other policy with a capacity of at least 1");
    }
    if (q.capacity == 0) return field_error("queue.capacity", "range", "queue.capacity must be -1 or at least 1");
    return {};
  }
};
template <>
struct Table<SchedulingConfig> {
  static constexpr auto fields =
      std::tuple{optional("algorithm", &SchedulingConfig::algorithm, "How a worker is chosen among those that fit.")};
};
template <>
struct Table<QueueOptimizerConfig> {
  using S = QueueOptimizerConfig;
  static constexpr auto fields = std::tuple{
      optional("enabled", &S::enabled, "Look over a long queue in the background and say what would shorten it."),
      optional("threshold_jobs", &S::threshold_jobs, "Only while more jobs than this wait.", {0, 1e7}),
      optional("interval_ms", &S::interval_ms, "Time between two looks.", {100, 1e9}),
      optional("max_runtime_ms", &S::max_runtime_ms, "A look that takes longer is given up.", kPositiveMilliseconds)};
};
template <>
struct Table<EvictionConfig> {
  using S = EvictionConfig;
  static constexpr auto fields = std::tuple{
      optional("worker_policy", &S::worker_policy,
               "Which idle worker makes room for another model: the one longest unused, the one least often used, or "
               "none until an operator says so."),
      optional("vram_threshold", &S::vram_threshold,
               "A device with several workers that is fuller than this gives up idle ones; 1 disables. Never the last.",
               {0, 1}),
      optional("worker_idle_ttl_ms", &S::worker_idle_ttl_ms, "An idle worker is stopped after this long; 0 never.",
               kMilliseconds)};
};
template <>
struct Table<TimeoutConfig> {
  using S = TimeoutConfig;
  static constexpr auto fields = std::tuple{
      optional("default_ms", &S::default_ms, "Limit on a job's run when the request names none.",
               kPositiveMilliseconds),
      optional("max_ms", &S::max_ms, "Largest limit a request may ask for.", kPositiveMilliseconds),
      optional("idle_ms", &S::idle_ms, "Longest time between two tokens of a running job.", kPositiveMilliseconds),
      optional("queue_ms", &S::queue_ms, "Longest wait in the queue; 0 is no limit.", kMilliseconds),
      optional("cancellation_deadline_ms", &S::cancellation_deadline_ms, "Time a worker has to confirm a cancel.",
               kPositiveMilliseconds)};
  static base::Result<> validate(const S& t) {
    if (t.default_ms > t.max_ms)
      return field_error("timeout.default_ms", "range", "timeout.default_ms must not exceed timeout.max_ms");
    return {};
  }
};
template <>
struct Table<HeartbeatConfig> {
  using S = HeartbeatConfig;
  static constexpr auto fields = std::tuple{
      optional("interval_ms", &S::interval_ms, "How often pools report.", {100, 1e9}),
      optional("missed_threshold", &S::missed_threshold, "Missed reports after which a pool is unhealthy.", {1, 1000})};
};
template <>
struct Table<RetryConfig> {
  using S = RetryConfig;
  static constexpr auto fields =
      std::tuple{optional("enabled", &S::enabled, "Run a job again when its worker was lost."),
                 optional("max_attempts", &S::max_attempts, "Runs of one job at most.", {1, 1000}),
                 optional("initial_delay_ms", &S::initial_delay_ms, "Wait before the first retry.", kMilliseconds),
                 optional("multiplier", &S::multiplier, "Growth of the wait from retry to retry.", {1, 100}),
                 optional("max_delay_ms", &S::max_delay_ms, "Longest wait between two runs.", kMilliseconds),
                 optional("jitter", &S::jitter, "Spread delays between half and all of their length.")};
};
template <>
struct Table<StreamConfig> {
  using S = StreamConfig;
  static constexpr auto fields = std::tuple{
      optional("reconnect_grace_ms", &S::reconnect_grace_ms,
               "How long a job with on_disconnect resume waits for its client.", kMilliseconds),
      optional("slow_client_timeout_ms", &S::slow_client_timeout_ms,
               "A client that reads nothing for this long counts as gone.", kPositiveMilliseconds),
      optional("retain_ms", &S::retain_ms, "How long a finished stream stays readable.", kMilliseconds),
      optional("buffer_bytes_max", &S::buffer_bytes_max, "Memory for the events of all live streams.", {1 << 20, 1e13}),
      optional("keep_alive_ms", &S::keep_alive_ms, "Comment lines on an idle stream; 0 disables.", kMilliseconds)};
};
template <>
struct Table<PostgresqlConfig> {
  static constexpr auto fields = std::tuple{
      optional("connection_file", &PostgresqlConfig::connection_file,
               "File with libpq's connection string, mode 0600; omitted: PGHOST, PGDATABASE, PGSERVICE and so on.")};
};
template <>
struct Table<PersistenceConfig> {
  using S = PersistenceConfig;
  static constexpr auto fields = std::tuple{
      optional("store", &S::store, "Which database holds the jobs; postgresql: the keys of prompts stay here."),
      optional("postgresql", &S::postgresql),
      optional("payload_spool", &S::payload_spool, "Keep the sealed prompt of waiting jobs over a restart."),
      optional("retention_ms", &S::retention_ms, "How long records of finished jobs are kept.", kMilliseconds),
      optional("retention_count", &S::retention_count, "How many of them are kept; the oldest go first.", {0, 1e9}),
      optional("retention_bytes", &S::retention_bytes,
               "What the database may take beside the prompts of live jobs; the oldest finished jobs go first.",
               {1 << 20, 1e15})};
};
template <>
struct Table<RestartConfig> {
  using S = RestartConfig;
  static constexpr auto fields = std::tuple{
      optional("running_jobs", &S::running_jobs, "What a restart does with jobs that were running."),
      optional("worker_crashes_max", &S::worker_crashes_max,
               "Workers of one model that may crash within the window; the next start waits until it is over. 0: no "
               "limit and no backoff.",
               {0, 1e6}),
      optional("worker_crash_window_ms", &S::worker_crash_window_ms, "See worker_crashes_max.", kPositiveMilliseconds)};
};
template <>
struct Table<SessionConfig> {
  using S = SessionConfig;
  static constexpr auto fields = std::tuple{
      optional("ttl_ms", &S::ttl_ms, "A session that nobody used for this long is forgotten.", {1000, 600000}),
      optional("turns_max", &S::turns_max, "Jobs of one session at most.", {1, 1e6}),
      optional("count_max", &S::count_max,
               "Sessions kept at a time; each tenant, and the operator, may have an equal share.", {1, 1e6}),
      optional("token_budget", &S::token_budget,
               "Prompt and generated tokens of a session that names no budget; omitted: no limit.", {1, 1e12}),
      optional("time_budget_ms", &S::time_budget_ms,
               "Decode time of a session that names no budget; omitted: no limit.", kPositiveMilliseconds),
      optional("cost_budget", &S::cost_budget, "Cost of a session that names no budget; omitted: no limit.",
               {0.000001, 1e6}),
      optional("cost_per_prompt_token", &S::cost_per_prompt_token, "Price of a prompt token, in units of your choice.",
               {0, 1000}),
      optional("cost_per_output_token", &S::cost_per_output_token, "Price of a generated token.", {0, 1000})};
};
template <>
struct Table<ThrottleConfig> {
  using S = ThrottleConfig;
  static constexpr auto fields = std::tuple{
      optional("requests_per_second", &S::requests_per_second,
               "Submissions of one tenant, and what it asks that takes work and becomes no job; 0 is no limit.",
               {0, 1e6}),
      optional("tokens_per_second", &S::tokens_per_second,
               "Prompt tokens and max_tokens of one tenant's jobs; 0 is no limit.", {0, 1e9}),
      optional("burst_seconds", &S::burst_seconds, "How many seconds' worth may come at once.", {1, 3600})};
};
template <>
struct Table<QuotaConfig> {
  using S = QuotaConfig;
  static constexpr auto fields = std::tuple{
      optional("max_concurrent_jobs", &S::max_concurrent_jobs,
               "Jobs of one tenant that run at a time; the others wait. 0 is no limit.", {0, 1e6}),
      optional("token_budget_daily", &S::token_budget_daily,
               "Prompt and generated tokens of one tenant from midnight to midnight UTC; 0 is no limit.", {0, 1e12})};
};
template <>
struct Table<TenantConfig> {
  using S = TenantConfig;
  static constexpr auto fields =
      std::tuple{required("id", &S::id, "Its name in records and logs."),
                 required("token_file", &S::token_file, "File with its bearer token, mode 0600.", {1}),
                 optional("throttle", &S::throttle, "Omitted: orchestratord.throttle."),
                 optional("quotas", &S::quotas, "Omitted: orchestratord.quotas.")};
  static base::Result<> validate(const S& t) {
    // Names that a caller without a token has.
    if (base::is_valid_identifier(t.id, 64) && t.id != "localhost" && t.id != "anonymous") return {};
    return field_error("tenants", "charset",
                       "tenants[].id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -, and neither localhost nor "
                       "anonymous");
  }
};
template <>
struct Table<LimitsConfig> {
  using S = LimitsConfig;
  static constexpr auto fields =
      std::tuple{optional("max_tokens", &S::max_tokens, "Largest max_tokens of a request.", {1, 1e6}),
                 optional("prompt_bytes_max", &S::prompt_bytes_max, "Largest prompt, as UTF-8.", {1, 1e9}),
                 optional("request_bytes_max", &S::request_bytes_max, "Largest body of a request.", {1024, 1e9}),
                 optional("request_bytes_in_flight_max", &S::request_bytes_in_flight_max,
                          "Bytes of all requests that are being received or not answered yet.", {1 << 20, 1e12}),
                 optional("workers_per_gpu", &S::workers_per_gpu, "Workers on one device at a time.", {1, 64})};
  static base::Result<> validate(const S& c) {
    // Half is for requests on their way, half for handlers: room for two of the largest in each.
    if (c.request_bytes_in_flight_max >= 4 * c.request_bytes_max) return {};
    return field_error("limits.request_bytes_in_flight_max", "range",
                       fmt::format("limits.request_bytes_in_flight_max is {} and must be at least four times "
                                   "limits.request_bytes_max, which is {}",
                                   c.request_bytes_in_flight_max, c.request_bytes_max));
  }
};
template <>
struct Table<FilesConfig> {
  using S = FilesConfig;
  static constexpr auto fields = std::tuple{
      optional("tenant_bytes_max", &S::tenant_bytes_max,
               "Bytes of files, batches and responses in the background that a caller may have kept.", {1 << 20, 1e15}),
      optional("retention_ms", &S::retention_ms, "How long a file, and a batch that has ended, is kept.",
               kMilliseconds),
      optional("responses_retention_ms", &S::responses_retention_ms,
               "How long a response in the background is kept after its end.", kMilliseconds)};
};
template <>
struct Table<GatewaysConfig> {
  static constexpr auto fields =
      std::tuple{optional("anthropic", &GatewaysConfig::anthropic, "Serve the Anthropic API under /v1/messages."),
                 optional("console", &GatewaysConfig::console, "Serve the web console at /."),
                 optional("llamacpp", &GatewaysConfig::llamacpp,
                          "Serve /tokenize, /detokenize, /apply-template and /rerank of llama.cpp's server."),
                 optional("ollama", &GatewaysConfig::ollama, "Serve the Ollama API under /api."),
                 optional("openai", &GatewaysConfig::openai, "Serve the OpenAI API under /v1.")};
};
template <>
struct Table<TracingConfig> {
  static constexpr auto fields = std::tuple{optional(
      "otlp_endpoint", &TracingConfig::otlp_endpoint,
      "Collector that is told the spans of jobs, as http://127.0.0.1:4318 (OTLP over HTTP); empty: nobody is.")};
  static base::Result<> validate(const TracingConfig& c) {
    constexpr std::string_view kScheme = "http://";
    const bool is_address = c.otlp_endpoint.starts_with(kScheme) && c.otlp_endpoint.size() > kScheme.size() &&
                            !c.otlp_endpoint.ends_with('/') &&
                            c.otlp_endpoint.find_first_of("@?# ") == std::string::npos;
    if (c.otlp_endpoint.empty() || is_address) return {};
    return field_error(
        "orchestratord.tracing.otlp_endpoint", "charset",
        "orchestratord.tracing.otlp_endpoint takes http://, a host and a port, without a user, a query or a "
        "slash at its end: http://127.0.0.1:4318. A collector behind TLS is reached through one on this machine");
  }
};
// As a browser writes them, so that they are compared as they stand.
inline base::Result<> check_names(const OrchestratordConfig& c) {
  for (const std::string& host : c.hosts) {
    if (!host.empty() && host.find_first_of("/:@*? ") == std::string::npos) continue;
    return field_error(
        "orchestratord.hosts", "charset",
        fmt::format("orchestratord.hosts has \"{}\"; it takes names and IPv4 addresses, without a scheme or "
                    "a port: llm.example",
                    host));
  }
  for (const std::string& origin : c.cors_origins) {
    // Programs that are pages have schemes of their own: app://obsidian.md, vscode-webview://..., chrome-extension://...
    const std::size_t colon = origin.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.");
    const bool has_scheme = colon != std::string::npos && colon > 0 && origin.compare(colon, 3, "://") == 0;
    const bool has_host = has_scheme && origin.size() > colon + 3;
    if (has_host && origin.find_first_of("/@*? ", colon + 3) == std::string::npos) continue;
    return field_error(
        "orchestratord.cors_origins", "charset",
        fmt::format("orchestratord.cors_origins has \"{}\"; it takes a scheme, a name and a port if it is "
                    "not the scheme's own, and nothing behind: https://chat.example",
                    origin));
  }
  return {};
}
inline base::Result<> check_tenants(const OrchestratordConfig& c) {
  std::set<std::string_view> ids;
  for (const TenantConfig& tenant : c.tenants) {
    if (!ids.insert(tenant.id).second) {
      return field_error("tenants", "unique", fmt::format("tenants has two entries with the id {}", tenant.id));
    }
  }
  return {};
}

template <>
struct Table<OrchestratordConfig> {
  using S = OrchestratordConfig;
  static constexpr auto fields = std::tuple{
      optional("bind", &S::bind, "Address and port; beyond loopback only with a token."),
      optional("hosts", &S::hosts,
               "Names by which clients call this server, besides localhost and the addresses of this machine."),
      optional("cors_origins", &S::cors_origins,
               "Sites whose pages may call this server, as https://chat.example, app://obsidian.md."),
      optional("queue", &S::queue),
      optional("scheduling", &S::scheduling),
      optional("queue_optimizer", &S::queue_optimizer),
      optional("eviction", &S::eviction),
      optional("timeout", &S::timeout),
      optional("heartbeat", &S::heartbeat),
      optional("retry", &S::retry),
      optional("stream", &S::stream),
      optional("persistence", &S::persistence),
      optional("restart", &S::restart),
      optional("sessions", &S::sessions),
      optional("throttle", &S::throttle),
      optional("quotas", &S::quotas),
      optional("tenants", &S::tenants, "Callers with a token and limits of their own.", {0, 1000}),
      optional("limits", &S::limits),
      optional("gateways", &S::gateways),
      optional("files", &S::files),
      optional("tracing", &S::tracing),
      optional("worker_start_timeout_ms", &S::worker_start_timeout_ms, "Longest start of a worker that jobs wait for.",
               kPositiveMilliseconds),
      optional("worker_slots", &S::worker_slots, "Jobs one worker runs at a time; never changes an answer.", {1, 1024}),
      optional("worker_context_tokens", &S::worker_context_tokens,
               "Context of new workers; a model made for less, and where this is omitted every model, has its own.",
               {1, 1e8}),
      optional("worker_kv_tokens", &S::worker_kv_tokens,
               "Tokens a worker's cache holds for all slots together, at least one context; 0: slots x context.",
               {0, 1e12}),
      optional(
          "worker_image_tokens_max", &S::worker_image_tokens_max,
          "Tokens that the images of one request may take; 0: no images. Each slot of a worker holds memory for them.",
          {0, static_cast<double>(kImageTokensMax)}),
      optional("stage_models", &S::stage_models,
               "Have pools read a model into the host's memory while its jobs wait for a device."),
      optional("kv_dtype", &S::kv_dtype, "Element type of the KV cache: f16 or f32; part of a result's identity.")};
  static base::Result<> validate(const S& c) {
    TRY(check_bind(c.bind, "orchestratord.bind"));
    TRY(check_tenants(c));
    TRY(check_names(c));
    if (c.kv_dtype != "f16" && c.kv_dtype != "f32") {
      return field_error("orchestratord.kv_dtype", "enum", "orchestratord.kv_dtype must be one of: f16, f32");
    }
    return {};
  }
};
// Whether a URL leads to this machine by its name alone.
inline bool is_loopback_url(std::string_view url) {
  const std::size_t at = url.find("://");
  if (at == std::string_view::npos) return false;
  const std::string_view host = url.substr(at + 3);
  for (const std::string_view name : {"127.", "localhost", "[::1]"}) {
    const std::string_view rest = host.starts_with(name) ? host.substr(name.size()) : std::string_view("x");
    const bool whole = name == "127." ? host.substr(0, host.find_first_of(":/")).find_first_not_of("0123456789.") ==
                                            std::string_view::npos
                                      : rest.empty() || rest[0] == ':' || rest[0] == '/';
    if (host.starts_with(name) && whole) return true;
  }
  return false;
}
template <>
struct Table<BinaryConfig> {
  using S = BinaryConfig;
  static constexpr auto fields =
      std::tuple{optional("url", &S::url,
                          "https://... or file:/...: a .tar, .tar.gz, .tar.xz or .zip archive, or the program itself."),
                 optional("checksum", &S::checksum, "sha256:HEX of that file.")};
};
template <>
struct Table<PackageConfig> {
  using S = PackageConfig;
  static constexpr auto fields = std::tuple{
      optional("name", &S::name, "A project of the Python package index (models.pull.pypi_url)."),
      optional("version", &S::version, "Its version."),
      optional("checksum", &S::checksum, "sha256:HEX of its wheel for this machine."),
      optional("dependencies", &S::dependencies,
               "What it needs besides, all of it: NAME==VERSION sha256:HEX each; nothing else is installed.", {0, 256}),
      optional("python", &S::python, "Interpreter to make its environment with; empty: python3 of PATH.")};
};
template <>
struct Table<ContainerConfig> {
  using S = ContainerConfig;
  static constexpr auto fields =
      std::tuple{optional("image", &S::image, "REGISTRY/REPOSITORY."), optional("tag", &S::tag, "Its tag."),
                 optional("digest", &S::digest, "sha256:HEX; empty: whatever the tag names on the day."),
                 optional("runtime", &S::runtime, "podman or docker; empty: the first of them in PATH."),
                 optional("volumes", &S::volumes, "Absolute paths that it may read, under the same names.", {0, 64})};
};
template <>
struct Table<SourceBuildConfig> {
  using S = SourceBuildConfig;
  static constexpr auto fields =
      std::tuple{optional("cmake_flags", &S::cmake_flags, "Of the configuration, e.g. -DGGML_NATIVE=ON.", {0, 128}),
                 optional("generator", &S::generator, "Empty: that of cmake."),
                 optional("target", &S::target, "Empty: all of them.")};
};
template <>
struct Table<SourceConfig> {
  using S = SourceConfig;
  static constexpr auto fields =
      std::tuple{optional("repo", &S::repo, "https://... or file:///... of a git repository."),
                 optional("ref", &S::ref, "A commit, 40 hex digits: a branch or tag may move."),
                 optional("submodules", &S::submodules, "Fetch its submodules."), optional("build", &S::build)};
};
template <>
struct Table<ProvisioningConfig> {
  using S = ProvisioningConfig;
  static constexpr auto fields =
      std::tuple{optional("mode", &S::mode, "How its program comes here; external: it is here, or runs elsewhere."),
                 optional("version", &S::version, "Of the engine, for listings."),
                 optional("source", &S::source),
                 optional("container", &S::container),
                 optional("package", &S::package),
                 optional("binary", &S::binary)};
};
template <>
struct Table<InstallPolicyConfig> {
  using S = InstallPolicyConfig;
  static constexpr auto fields = std::tuple{
      optional("allow_binary_downloads", &S::allow_binary_downloads, "Engines of mode binary may be downloaded."),
      optional("allow_package_installs", &S::allow_package_installs, "Engines of mode package may be installed."),
      optional("allow_container_pulls", &S::allow_container_pulls,
               "Images of engines of mode container may be pulled."),
      optional("allow_source_builds", &S::allow_source_builds, "Engines of mode source may be fetched and built."),
      optional("at_start", &S::at_start,
               "A starting pool installs the engines that it lacks; else only an operator does."),
      optional("cache_dir", &S::cache_dir, "Where they are installed. Empty: ~/.cache/llama-orch/engines."),
      optional("step_timeout_ms", &S::step_timeout_ms, "A command of an installation that takes longer is ended.",
               {1000, 8.64e7})};
};
template <>
struct Table<EngineConfig> {
  using S = EngineConfig;
  static constexpr auto fields = std::tuple{
      required("name", &S::name, "Jobs name it as engine:NAME."),
      required("engine", &S::engine, "Whose API it speaks: llamacpp, openai, tgi, triton or vllm."),
      required("endpoint", &S::endpoint,
               "http(s)://host[:port][/path]. Of an engine that is started {port} stands for its port."),
      optional("model", &S::model, "The engine's name for the model; empty: the only one it serves."),
      optional("api_key_file", &S::api_key_file, "File with the key for it, mode 0600."),
      optional("ca_file", &S::ca_file, "Certificates to trust instead of the system's."),
      optional("proxy", &S::proxy, "URL of a proxy; those of the environment are not used."),
      optional("plain_http", &S::plain_http, "Prompts may go beyond this machine without TLS."),
      optional("context_tokens", &S::context_tokens, "Of prompt and answer together; 0 is what the engine says.",
               {0, 1e9}),
      optional("slots", &S::slots, "Jobs it is given at a time.", {1, 1024}),
      optional("silence_ms", &S::silence_ms, "Longest time that it may send nothing during a job.", {1000, 3.6e6}),
      optional(
          "command", &S::command,
          "Absolute path of its program, and arguments; {port} stands for a free port, {engine} for the directory that "
          "it is installed in. Of a container: the arguments alone. Empty: it runs already.",
          {0, 256}),
      optional("environment", &S::environment, "Variables of a started one, besides those of pool-managerd."),
      optional("device", &S::device,
               "Of a started one: the device that its memory is counted on, cpu or a GPU's number."),
      optional("memory_bytes", &S::memory_bytes, "Of a started one: what it takes of that device.", {0, 1e15}),
      optional("provisioning", &S::provisioning)};

  static base::Result<> validate(const S& e) {
    const auto refuse = [&](std::string_view field, std::string_view rule, std::string_view why) {
      return field_error("engines", rule, fmt::format("pool-managerd.engines[{}].{}: {}", e.name, field, why));
    };
    if (!base::is_valid_identifier(e.name, 64)) return refuse("name", "charset", "1 to 64 of A-Z, a-z, 0-9, _ and -");
    constexpr std::array<std::string_view, 5> kKinds{"llamacpp", "openai", "tgi", "triton", "vllm"};
    if (std::ranges::find(kKinds, e.engine) == kKinds.end()) {
      return refuse("engine", "enum", "one of llamacpp, openai, tgi, triton, vllm");
    }
    const bool tls = e.endpoint.starts_with("https://");
    if (!tls && !e.endpoint.starts_with("http://")) return refuse("endpoint", "url", "an http or https URL");
    if (e.endpoint.find('@') != std::string::npos) return refuse("endpoint", "url", "a key belongs into api_key_file");
    if (!tls && !e.plain_http && !is_loopback_url(e.endpoint)) {
      return refuse("endpoint", "tls", "prompts would leave this machine without TLS; use https, or set plain_http");
    }
    if (!e.device.empty() && !is_loopback_url(e.endpoint)) {
      return refuse("endpoint", "combination", "an engine that is started here is on http://127.0.0.1:{port}");
    }
    if (const auto broken = broken_rule(e)) return refuse(broken->field, broken->reason, broken->why);
    return {};
  }
};
inline base::Result<> check_engines(const std::vector<EngineConfig>& engines) {
  std::set<std::string_view> names;
  for (const EngineConfig& engine : engines) {
    if (!names.insert(engine.name).second) {
      return field_error("engines", "unique",
                         fmt::format("pool-managerd.engines has two entries named {}", engine.name));
    }
  }
  return {};
}
template <>
struct Table<PoolManagerdConfig> {
  using S = PoolManagerdConfig;
  static constexpr auto fields = std::tuple{
      optional("bind", &S::bind, "Address and port; beyond loopback only with a token."),
      optional("advertise", &S::advertise,
               "Host name or address at which others reach this node; empty: that of bind. A bind to all addresses "
               "needs it."),
      optional("credential_file", &S::credential_file,
               "File with the credential of this pool, mode 0600; empty: pool_credential in the state directory."),
      optional("pool_id", &S::pool_id, "Unique name of this node."),
      optional("orchestrator_url", &S::orchestrator_url, "Where orchestratord listens."),
      optional("heartbeat_interval_ms", &S::heartbeat_interval_ms, "How often the state is sent to orchestratord.",
               {100, 1e9}),
      optional("worker_start_timeout_ms", &S::worker_start_timeout_ms,
               "A worker that is not ready after this is killed.", kPositiveMilliseconds),
      optional("worker_health_interval_ms", &S::worker_health_interval_ms,
               "How often a worker is asked for its health.", kPositiveMilliseconds),
      optional("worker_drain_grace_ms", &S::worker_drain_grace_ms, "Time a stopping worker has before SIGTERM.",
               kMilliseconds),
      optional("vram_headroom_bytes", &S::vram_headroom_bytes, "Memory left free on every device.", {0, 1e13}),
      optional("staging_bytes_max", &S::staging_bytes_max,
               "Host memory for models that are to start soon; omitted: a quarter of what is left at the start.",
               {0, 1e15}),
      optional("worker_binary", &S::worker_binary, "Empty: worker-orcd beside pool-managerd."),
      optional("worker_threads", &S::worker_threads, "Threads of a worker on the CPU reference device; 0 is all cores.",
               {0, 4096}),
      optional("worker_step_counters", &S::worker_step_counters,
               "Workers count kernel launches and time steps on their GPUs, for /metrics."),
      optional(
          "worker_speculation", &S::worker_speculation,
          "Whether workers compute tokens ahead: off, or ngram, those that followed before in the same text. Pauses "
          "where it does not pay; never changes an answer."),
      optional("worker_speculation_tokens", &S::worker_speculation_tokens,
               "Most tokens that a worker computes ahead for a job in a step.", {1, 16}),
      optional("engines", &S::engines, "Engines of other systems that run models as engine:NAME.", {0, 256}),
      optional("provisioning", &S::provisioning)};
  static base::Result<> validate(const S& c) {
    TRY(check_bind(c.bind, "pool-managerd.bind"));
    TRY(check_engines(c.engines));
    if (!base::is_valid_identifier(c.pool_id)) {
      return field_error("pool-managerd.pool_id", "charset",
                         "pool-managerd.pool_id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
    }
    if (c.worker_speculation != "off" && c.worker_speculation != "ngram") {
      return field_error("pool-managerd.worker_speculation", "enum",
                         "pool-managerd.worker_speculation must be one of: off, ngram");
    }
    return {};
  }
};
template <>
struct Table<DevicesConfig> {
  using S = DevicesConfig;
  static constexpr auto fields =
      std::tuple{optional("allow_cpu", &S::allow_cpu, "Offer the CPU reference device; never a fallback."),
                 optional("cpu_memory_bytes", &S::cpu_memory_bytes, "Its memory budget; omitted: half of what is free.",
                          {1 << 20, 1e15})};
};
constexpr std::int64_t kModelTimeoutMsMax = 86'400'000;  // as in a request

struct PerModel {
  std::string_view key, what;
};
// A model has one value, whatever it is called.
template <class Value>
base::Result<> check_per_model(const ModelsConfig& m, const std::map<std::string, Value>& values,
                               const PerModel& per_model) {
  const auto& [key, what] = per_model;
  std::map<std::string_view, Value> by_ref;
  for (const auto& [name, value] : values) {
    const auto alias = m.aliases.find(name);
    const std::string& ref = alias == m.aliases.end() ? name : alias->second;
    if (alias == m.aliases.end() && !ref.starts_with("file:/") && !ref.starts_with("hf:") &&
        !ref.starts_with("engine:")) {
      return field_error(key, "reference",
                         fmt::format("{} maps names of models.aliases, or references, to {}", key, what));
    }
    if (by_ref.emplace(ref, value).first->second != value) {
      return field_error(key, "unique", fmt::format("{} gives one model two values", key));
    }
  }
  return {};
}

inline base::Result<> check_numbers_per_model(const ModelsConfig& m, const std::map<std::string, std::int64_t>& values,
                                              const PerModel& per_model, std::int64_t max) {
  for (const auto& [name, value] : values) {
    if (value >= 1 && value <= max) continue;
    return field_error(per_model.key, "range", fmt::format("{} holds {}, 1 to {}", per_model.key, per_model.what, max));
  }
  return check_per_model(m, values, per_model);
}

template <>
struct Table<PullConfig> {
  using S = PullConfig;
  static constexpr auto fields = std::tuple{
      optional("policy", &S::policy, "ask: fetch what an operator asks for by name; off: nothing leaves this machine."),
      optional(
          "allowed_hosts", &S::allowed_hosts,
          "Hosts, or domains as .example.org, that models may come from, plain http and private addresses included. "
          "Empty: every host with a public address, by https."),
      optional("proxy", &S::proxy, "URL of a proxy; those of the environment are not used."),
      optional("ca_file", &S::ca_file, "Certificates to trust instead of the system's."),
      optional("hub_url", &S::hub_url, "Server of hf: references."),
      optional("hub_token_file", &S::hub_token_file,
               "File with the token for it, mode 0600; it goes to no other host."),
      optional("pypi_url", &S::pypi_url, "Index of pypi: references."),
      optional("s3_url", &S::s3_url, "Server of s3: references."),
      optional("s3_region", &S::s3_region, "Region that its requests are signed for."),
      optional("s3_key_file", &S::s3_key_file,
               "File with key id and secret key, separated by a space, mode 0600; empty: requests are not signed."),
      optional("connections", &S::connections, "Parts of a file that are fetched at a time.", {1, 16}),
      optional("bytes_per_second_max", &S::bytes_per_second_max, "Of all pulls together; 0 is no limit.", {0, 1e12}),
      optional("stall_timeout_ms", &S::stall_timeout_ms,
               "A server that sends less than 1 KiB/s for this long counts as silent.", {1000, 3.6e6}),
      optional("attempts_max", &S::attempts_max, "Times in a row that a server may fail before the pull does.",
               {1, 100})};
};
template <>
struct Table<ModelsConfig> {
  using S = ModelsConfig;
  static constexpr auto fields = std::tuple{
      optional("aliases", &S::aliases, "Short name to file:/absolute/path or engine:NAME."),
      optional("tensor_split", &S::tensor_split,
               "Alias or reference to the number of devices that share the model in one worker; others: one."),
      optional("timeout_ms", &S::timeout_ms,
               "Alias or reference to the limit on a run of the model when the request names none; others: "
               "orchestratord.timeout.default_ms."),
      optional(
          "chat_format", &S::chat_format,
          "Alias or reference to the way the model marks tool calls and thoughts, a name of docs/guide/tool-calls.md; "
          "others: the one that the model's chat template teaches."),
      optional("allowed_roots", &S::allowed_roots, "Directories that file: references may point into."),
      optional("watched_directories", &S::watched_directories,
               "Directories of which every .gguf file can be named, as soon as it is there; file: references may point "
               "into them."),
      optional("preload", &S::preload,
               "Aliases, names or references of models that get a worker at the start; until each has one, "
               "/v2/health says that the service is not ready."),
      optional("cache_dir", &S::cache_dir, "Empty: ~/.cache/llama-orch/models."),
      optional("repacked_dir", &S::repacked_dir,
               "Where weights are kept as the CPU device packs them, so that a model's next worker starts at once; "
               "empty: repacked in the state directory."),
      optional("repacked_bytes_max", &S::repacked_bytes_max,
               "Most bytes of them; the least recently used go first. 0: none are kept.", {0, 1e15}),
      optional("known_models", &S::known_models, "Files with names of models to pull, besides those that come along."),
      optional("pull", &S::pull)};
  static base::Result<> validate(const S& m) {
    for (const std::string& root : m.allowed_roots) {
      if (!root.starts_with('/')) {
        return field_error("models.allowed_roots", "path", "models.allowed_roots holds absolute paths of directories");
      }
    }
    if (!m.repacked_dir.empty() && !m.repacked_dir.starts_with('/'))
      return field_error("models.repacked_dir", "path", "models.repacked_dir is the absolute path of a directory");
    for (const std::string& directory : m.watched_directories) {
      if (!directory.starts_with('/')) {
        return field_error("models.watched_directories", "path",
                           "models.watched_directories holds absolute paths of directories");
      }
    }
    for (const auto& [name, ref] : m.aliases) {
      const bool is_ref = ref.starts_with("file:/") || ref.starts_with("hf:") || ref.starts_with("engine:");
      if (!base::is_valid_identifier(name, 128) || !is_ref) {
        return field_error("models.aliases", "reference",
                           "models.aliases maps plain names to file:/absolute/path, hf:org/repo or engine:NAME");
      }
    }
    TRY(check_numbers_per_model(m, m.tensor_split, {"models.tensor_split", "numbers of devices"},
                                static_cast<std::int64_t>(kMaskDevicesMax)));
    TRY(check_per_model(m, m.chat_format, {"models.chat_format", "names of chat formats"}));
    return check_numbers_per_model(m, m.timeout_ms, {"models.timeout_ms", "milliseconds"}, kModelTimeoutMsMax);
  }
};
template <>
struct Table<AuthConfig> {
  using S = AuthConfig;
  static constexpr auto fields =
      std::tuple{optional("token_file", &S::token_file, "File with the bearer token, mode 0600."),
                 optional("optional_on_loopback", &S::optional_on_loopback, "Callers on this machine need no token."),
                 optional("reader_token_files", &S::reader_token_files,
                          "Files with tokens that only read pools and metrics, mode 0600.")};
};
template <>
struct Table<LogConfig> {
  static constexpr auto fields =
      std::tuple{optional("level", &LogConfig::level, "trace, debug, info, warn or error."),
                 optional("format", &LogConfig::format,
                          "json: one object a line; text: for people. llorch up keeps json and llorch logs shows it.")};
  static base::Result<> validate(const LogConfig& l) {
    if (l.format != "json" && l.format != "text") {
      return field_error("log.format", "enum", "log.format must be json or text");
    }
    for (const std::string_view name : {"trace", "debug", "info", "warn", "error"}) {
      if (l.level == name) return {};
    }
    return field_error("log.level", "enum", "log.level must be one of: trace, debug, info, warn, error");
  }
};
template <>
struct Table<Config> {
  using S = Config;
  static constexpr auto fields = std::tuple{optional("orchestratord", &S::orchestratord),
                                            optional("pool-managerd", &S::pool_managerd),
                                            optional("devices", &S::devices),
                                            optional("models", &S::models),
                                            optional("auth", &S::auth),
                                            optional("log", &S::log)};
  // A limit that would be cut off without a word is refused.
  static base::Result<> validate(const S& c) {
    const std::int64_t max_ms = c.orchestratord.timeout.max_ms;
    for (const auto& [name, value] : c.models.timeout_ms) {
      if (value <= max_ms) continue;
      return field_error(
          "models.timeout_ms", "range",
          fmt::format("models.timeout_ms gives {} {} ms, and orchestratord.timeout.max_ms no run more than {}", name,
                      value, max_ms));
    }
    return {};
  }
};

}  // namespace llorch::wire
