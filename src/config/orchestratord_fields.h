#pragma once
// The names, ranges and texts of the keys under `orchestratord`. Included by config_fields.h alone.
#include "base/origin.h"
#include "config/common_fields.h"
#include "wire/request_limits.h"

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
struct EnumNames<RunningJobs> {
  static constexpr auto names = std::array{std::pair{RunningJobs::kReplay, std::string_view("replay")},
                                           std::pair{RunningJobs::kFail, std::string_view("fail")}};
};

template <>
struct Table<QueueConfig> {
  using S = QueueConfig;
  static Fields fields() {
    return {
        optional("capacity", &S::capacity,
                 "Jobs that may wait; with tenants, each has a share of them. -1 is unbounded and needs policy queue.",
                 {-1, 1e7}),
        optional("policy", &S::policy, "What a full queue does with a newcomer."),
        optional("batch_promotion_ms", &S::batch_promotion_ms,
                 "A batch job that waited this long is treated as interactive; 0 disables.", kMilliseconds),
        optional(
            "shed_after_ms", &S::shed_after_ms,
            "While a job has waited this long, new batch jobs of its model are refused; while one has waited twice "
            "as long, all are. 0 disables.",
            kMilliseconds)};
  }
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
  static Fields fields() {
    return {optional("algorithm", &SchedulingConfig::algorithm, "How a worker is chosen among those that fit.")};
  }
};
template <>
struct Table<QueueOptimizerConfig> {
  using S = QueueOptimizerConfig;
  static Fields fields() {
    return {
        optional("enabled", &S::enabled, "Look over a long queue in the background and say what would shorten it."),
        optional("threshold_jobs", &S::threshold_jobs, "Only while more jobs than this wait.", {0, 1e7}),
        optional("interval_ms", &S::interval_ms, "Time between two looks.", {100, 1e9}),
        optional("max_runtime_ms", &S::max_runtime_ms, "A look that takes longer is given up.", kPositiveMilliseconds)};
  }
};
template <>
struct Table<EvictionConfig> {
  using S = EvictionConfig;
  static Fields fields() {
    return {
        optional("worker_policy", &S::worker_policy,
                 "Which idle worker makes room for another model: the one longest unused, the one least often used, or "
                 "none until an operator says so."),
        optional(
            "vram_threshold", &S::vram_threshold,
            "A device with several workers that is fuller than this gives up idle ones; 1 disables. Never the last.",
            {0, 1}),
        optional("worker_idle_ttl_ms", &S::worker_idle_ttl_ms, "An idle worker is stopped after this long; 0 never.",
                 kMilliseconds)};
  }
};
template <>
struct Table<TimeoutConfig> {
  using S = TimeoutConfig;
  static Fields fields() {
    return {
        optional("default_ms", &S::default_ms, "Limit on a job's run when the request names none.",
                 kPositiveMilliseconds),
        optional("max_ms", &S::max_ms, "Largest limit a request may ask for.", kPositiveMilliseconds),
        optional("idle_ms", &S::idle_ms, "Longest time between two tokens of a running job.", kPositiveMilliseconds),
        optional("queue_ms", &S::queue_ms, "Longest wait in the queue; 0 is no limit.", kMilliseconds),
        optional("cancellation_deadline_ms", &S::cancellation_deadline_ms, "Time a worker has to confirm a cancel.",
                 kPositiveMilliseconds)};
  }
  static base::Result<> validate(const S& t) {
    if (t.default_ms > t.max_ms)
      return field_error("timeout.default_ms", "range", "timeout.default_ms must not exceed timeout.max_ms");
    return {};
  }
};
template <>
struct Table<HeartbeatConfig> {
  using S = HeartbeatConfig;
  static Fields fields() {
    return {optional("interval_ms", &S::interval_ms, "How often pools report.", {100, 1e9}),
            optional("missed_threshold", &S::missed_threshold, "Missed reports after which a pool is unhealthy.",
                     {1, 1000})};
  }
};
template <>
struct Table<RetryConfig> {
  using S = RetryConfig;
  static Fields fields() {
    return {optional("enabled", &S::enabled, "Run a job again when its worker was lost."),
            optional("max_attempts", &S::max_attempts, "Runs of one job at most.", {1, 1000}),
            optional("initial_delay_ms", &S::initial_delay_ms, "Wait before the first retry.", kMilliseconds),
            optional("multiplier", &S::multiplier, "Growth of the wait from retry to retry.", {1, 100}),
            optional("max_delay_ms", &S::max_delay_ms, "Longest wait between two runs.", kMilliseconds),
            optional("jitter", &S::jitter, "Spread delays between half and all of their length.")};
  }
};
template <>
struct Table<StreamConfig> {
  using S = StreamConfig;
  static Fields fields() {
    return {
        optional("reconnect_grace_ms", &S::reconnect_grace_ms,
                 "How long a job with on_disconnect resume waits for its client.", kMilliseconds),
        optional("slow_client_timeout_ms", &S::slow_client_timeout_ms,
                 "A client that reads nothing for this long counts as gone.", kPositiveMilliseconds),
        optional("retain_ms", &S::retain_ms, "How long a finished stream stays readable.", kMilliseconds),
        optional("buffer_bytes_max", &S::buffer_bytes_max, "Memory for the events of all live streams.",
                 {1 << 20, 1e13}),
        optional("keep_alive_ms", &S::keep_alive_ms, "Comment lines on an idle stream; 0 disables.", kMilliseconds)};
  }
};
template <>
struct Table<PostgresqlConfig> {
  static Fields fields() {
    return {
        optional("connection_file", &PostgresqlConfig::connection_file,
                 "File with libpq's connection string, mode 0600; omitted: PGHOST, PGDATABASE, PGSERVICE and so on.")};
  }
};
template <>
struct Table<PersistenceConfig> {
  using S = PersistenceConfig;
  static Fields fields() {
    return {
        optional("store", &S::store, "Which database holds the jobs; postgresql: the keys of prompts stay here."),
        optional("postgresql", &S::postgresql),
        optional("payload_spool", &S::payload_spool, "Keep the sealed prompt of waiting jobs over a restart."),
        optional("retention_ms", &S::retention_ms, "How long records of finished jobs are kept.", kMilliseconds),
        optional("retention_count", &S::retention_count,
                 "How many of them are kept; the oldest of the tenant that holds the most go first.", {0, 1e9}),
        optional(
            "retention_bytes", &S::retention_bytes,
            "What the database may take beside the prompts of live jobs; the oldest finished jobs of the tenant that "
            "holds the most go first.",
            {1 << 20, 1e15})};
  }
};
template <>
struct Table<RestartConfig> {
  using S = RestartConfig;
  static Fields fields() {
    return {
        optional("running_jobs", &S::running_jobs, "What a restart does with jobs that were running."),
        optional("worker_crashes_max", &S::worker_crashes_max,
                 "Workers of one model that may crash within the window; the next start waits until it is over. 0: no "
                 "limit and no backoff.",
                 {0, 1e6}),
        optional("worker_crash_window_ms", &S::worker_crash_window_ms, "See worker_crashes_max.",
                 kPositiveMilliseconds)};
  }
};
template <>
struct Table<SessionConfig> {
  using S = SessionConfig;
  static Fields fields() {
    return {optional("ttl_ms", &S::ttl_ms, "A session that nobody used for this long is forgotten.", {1000, 600000}),
            optional("turns_max", &S::turns_max, "Jobs of one session at most.", {1, 1e6}),
            optional("count_max", &S::count_max,
                     "Sessions kept at a time; each tenant, and the operator, may have an equal share.", {1, 1e6}),
            optional("token_budget", &S::token_budget,
                     "Prompt and generated tokens of a session that names no budget; omitted: no limit.", {1, 1e12}),
            optional("time_budget_ms", &S::time_budget_ms,
                     "Decode time of a session that names no budget; omitted: no limit.", kPositiveMilliseconds),
            optional("cost_budget", &S::cost_budget, "Cost of a session that names no budget; omitted: no limit.",
                     {0.000001, 1e6}),
            optional("cost_per_prompt_token", &S::cost_per_prompt_token,
                     "Price of a prompt token, in units of your choice.", {0, 1000}),
            optional("cost_per_output_token", &S::cost_per_output_token, "Price of a generated token.", {0, 1000})};
  }
};
template <>
struct Table<ThrottleConfig> {
  using S = ThrottleConfig;
  static Fields fields() {
    return {optional("requests_per_second", &S::requests_per_second,
                     "Submissions of one tenant, and what it asks that takes work and becomes no job; 0 is no limit.",
                     {0, 1e6}),
            optional("tokens_per_second", &S::tokens_per_second,
                     "Prompt tokens and max_tokens of one tenant's jobs; 0 is no limit.", {0, 1e9}),
            optional("burst_seconds", &S::burst_seconds, "How many seconds' worth may come at once.", {1, 3600})};
  }
};
template <>
struct Table<QuotaConfig> {
  using S = QuotaConfig;
  static Fields fields() {
    return {
        optional("max_concurrent_jobs", &S::max_concurrent_jobs,
                 "Jobs of one tenant that run at a time; the others wait. 0 is no limit.", {0, 1e6}),
        optional("token_budget_daily", &S::token_budget_daily,
                 "Prompt and generated tokens of one tenant from midnight to midnight UTC; 0 is no limit.", {0, 1e12})};
  }
};
template <>
struct Table<TenantThrottleConfig> {
  using S = TenantThrottleConfig;
  static Fields fields() {
    return {optional("requests_per_second", &S::requests_per_second,
                     "Omitted: orchestratord.throttle.requests_per_second; 0 is no limit.", {0, 1e6}),
            optional("tokens_per_second", &S::tokens_per_second,
                     "Omitted: orchestratord.throttle.tokens_per_second; 0 is no limit.", {0, 1e9}),
            optional("burst_seconds", &S::burst_seconds, "Omitted: orchestratord.throttle.burst_seconds.", {1, 3600})};
  }
};
template <>
struct Table<TenantQuotaConfig> {
  using S = TenantQuotaConfig;
  static Fields fields() {
    return {optional("max_concurrent_jobs", &S::max_concurrent_jobs,
                     "Omitted: orchestratord.quotas.max_concurrent_jobs; 0 is no limit.", {0, 1e6}),
            optional("token_budget_daily", &S::token_budget_daily,
                     "Omitted: orchestratord.quotas.token_budget_daily; 0 is no limit.", {0, 1e12})};
  }
};
template <>
struct Table<TenantConfig> {
  using S = TenantConfig;
  static Fields fields() {
    return {required("id", &S::id, "Its name in records and logs."),
            required("token_file", &S::token_file, "File with its bearer token, mode 0600.", {1}),
            optional("throttle", &S::throttle,
                     "Of each member that is omitted, and of all where this is: orchestratord.throttle."),
            optional("quotas", &S::quotas,
                     "Of each member that is omitted, and of all where this is: orchestratord.quotas.")};
  }
  static base::Result<> validate(const S& t) {
    // Names that a caller without a token has.
    const bool is_taken = t.id == "localhost" || t.id == "anonymous" || t.id == "nobody";
    if (base::is_valid_identifier(t.id, 64) && !is_taken) return {};
    return field_error("tenants", "charset",
                       "tenants[].id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -, and none of localhost, "
                       "anonymous and nobody");
  }
};
template <>
struct Table<LimitsConfig> {
  using S = LimitsConfig;
  static Fields fields() {
    return {
        optional("max_tokens", &S::max_tokens,
                 "Largest max_tokens of a request: /v2 and router v1 refuse more, other APIs lower it.", {1, 1e6}),
        optional("prompt_bytes_max", &S::prompt_bytes_max,
                 "Largest prompt, as UTF-8; of embeddings, and of documents with their query, each is one.", {1, 1e9}),
        optional("request_bytes_max", &S::request_bytes_max, "Largest body of a request.", {1024, kRequestBytesMax}),
        optional("request_bytes_in_flight_max", &S::request_bytes_in_flight_max,
                 "Bytes of all requests that are being received or not answered yet; as much again of whole "
                 "answers that clients take slowly.",
                 {1 << 20, 1e12}),
        optional("workers_per_gpu", &S::workers_per_gpu, "Workers on one device at a time.", {1, 64})};
  }
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
  static Fields fields() {
    return {
        optional(
            "tenant_bytes_max", &S::tenant_bytes_max,
            "Bytes of files, batches, conversations and kept results that a caller may have; answers to what it had "
            "begun may take 256 MiB more.",
            {1 << 20, 1e15}),
        optional("retention_ms", &S::retention_ms,
                 "How long a file, a batch that has ended, and a conversation that nobody uses is kept.",
                 kMilliseconds),
        optional("responses_retention_ms", &S::responses_retention_ms,
                 "How long a response in the background is kept after its end.", kMilliseconds)};
  }
};
template <>
struct Table<GatewaysConfig> {
  static Fields fields() {
    return {optional("anthropic", &GatewaysConfig::anthropic, "Serve the Anthropic API under /v1/messages."),
            optional("console", &GatewaysConfig::console, "Serve the web console at /."),
            optional("llamacpp", &GatewaysConfig::llamacpp,
                     "Serve /completion, /infill, /embedding, /props, /slots, /tokenize, /detokenize, /apply-template "
                     "and /rerank of llama.cpp's server."),
            optional("ollama", &GatewaysConfig::ollama, "Serve the Ollama API under /api."),
            optional("openai", &GatewaysConfig::openai, "Serve the OpenAI API under /v1.")};
  }
};
template <>
struct Table<TracingConfig> {
  static Fields fields() {
    return {optional(
        "otlp_endpoint", &TracingConfig::otlp_endpoint,
        "Collector that is told the spans of jobs, as http://127.0.0.1:4318 (OTLP over HTTP); empty: nobody is.")};
  }
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
    if (base::is_origin(origin)) continue;
    return field_error(
        "orchestratord.cors_origins", "charset",
        fmt::format(
            "orchestratord.cors_origins has \"{}\"; it takes what a browser or a program sends as Origin: a scheme, "
            "a name, a port if it is not the scheme's own, and nothing behind, as https://chat.example, "
            "tauri://localhost, file://{}",
            origin, origin == "null" ? "; null is what every sandboxed page sends, so it names nobody" : ""));
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
  static Fields fields() {
    return {
        optional("bind", &S::bind, "Address and port; beyond loopback only with a token."),
        optional("hosts", &S::hosts,
                 "Names by which the daemons of this machine are called, besides localhost and its addresses; of pools "
                 "also pool-managerd.advertise."),
        optional("cors_origins", &S::cors_origins,
                 "Sites and programs whose pages may call this server, as they send it: https://chat.example, "
                 "app://obsidian.md, "
                 "chrome-extension://ID, file://."),
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
        optional("worker_start_timeout_ms", &S::worker_start_timeout_ms,
                 "Longest start of a worker that jobs wait for.", kPositiveMilliseconds),
        optional("worker_slots", &S::worker_slots, "Jobs one worker runs at a time; never changes an answer.",
                 {1, 1024}),
        optional("worker_context_tokens", &S::worker_context_tokens,
                 "Context of new workers; a model made for less, and where this is omitted every model, has its own.",
                 {1, 1e8}),
        optional("worker_kv_tokens", &S::worker_kv_tokens,
                 "Tokens a worker's cache holds for all slots together, at least one context; 0: slots x context.",
                 {0, 1e12}),
        optional("worker_image_tokens_max", &S::worker_image_tokens_max,
                 "Tokens that the images of one request may take; 0: no images. Each slot of a worker holds memory for "
                 "them.",
                 {0, static_cast<double>(kImageTokensMax)}),
        optional("stage_models", &S::stage_models,
                 "Have pools read a model into the host's memory while its jobs wait for a device."),
        optional("kv_dtype", &S::kv_dtype, "Element type of the KV cache: f16 or f32; part of a result's identity.")};
  }
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

}  // namespace llorch::wire
