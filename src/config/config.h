#pragma once
// The configuration file: one YAML document for all programs of a box. Defaults are the member initialisers; names,
// ranges and texts are in config.cpp, from which the JSON Schema is generated. Precedence: flags > LLORCH_* > file >
// defaults (SYS-11.4).
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::config {

enum class QueuePolicy : std::uint8_t { kReject, kDropLru, kShedLowPriority, kQueue };
enum class PlacementAlgorithm : std::uint8_t { kLeastLoaded, kMostVramFree, kRoundRobin, kPredictedEnd };
enum class EvictionPolicy : std::uint8_t { kLru, kLfu, kManual };
enum class StoreKind : std::uint8_t { kSqlite, kPostgresql };
enum class PayloadSpool : std::uint8_t { kEncrypted, kOff };
enum class RunningJobs : std::uint8_t { kReplay, kFail };

// Of one request: an image of the largest size that a published model takes.
inline constexpr std::int64_t kImageTokensMax = 16384;

struct QueueConfig {
  std::int64_t capacity = 100;  // per pool and priority class together; -1 = unbounded, with policy queue only
  QueuePolicy policy = QueuePolicy::kReject;
  std::int64_t batch_promotion_ms = 300000;
  std::int64_t shed_after_ms = 0;  // a wait that is too long; 0: none is
};
struct SchedulingConfig {
  PlacementAlgorithm algorithm = PlacementAlgorithm::kLeastLoaded;
};
struct QueueOptimizerConfig {
  bool enabled = true;
  std::int64_t threshold_jobs = 10;
  std::int64_t interval_ms = 30000;
  std::int64_t max_runtime_ms = 5000;
};
struct EvictionConfig {
  EvictionPolicy worker_policy = EvictionPolicy::kLru;
  double vram_threshold = 0.9;
  std::int64_t worker_idle_ttl_ms = 0;  // 0 = an idle worker stays
};
struct TimeoutConfig {
  std::int64_t default_ms = 300000;
  std::int64_t max_ms = 1800000;
  std::int64_t idle_ms = 60000;
  std::int64_t queue_ms = 0;  // 0 = jobs may wait for ever
  std::int64_t cancellation_deadline_ms = 5000;
};
struct HeartbeatConfig {
  std::int64_t interval_ms = 15000;
  std::int64_t missed_threshold = 3;
};
struct RetryConfig {
  bool enabled = true;
  std::int64_t max_attempts = 5;
  std::int64_t initial_delay_ms = 1000;
  double multiplier = 2.0;
  std::int64_t max_delay_ms = 60000;
  bool jitter = true;
};
struct StreamConfig {
  std::int64_t reconnect_grace_ms = 10000;
  std::int64_t slow_client_timeout_ms = 30000;
  std::int64_t retain_ms = 60000;
  std::int64_t buffer_bytes_max = 256LL << 20;
  std::int64_t keep_alive_ms = 15000;
};
struct PostgresqlConfig {
  std::string connection_file;  // mode 0600; empty: libpq's own variables (PGHOST, PGSERVICE, ...)
};
struct PersistenceConfig {
  StoreKind store = StoreKind::kSqlite;
  PostgresqlConfig postgresql;
  PayloadSpool payload_spool = PayloadSpool::kEncrypted;
  std::int64_t retention_ms = 7LL * 24 * 3600 * 1000;
  std::int64_t retention_count = 1'000'000;
  std::int64_t retention_bytes = 1LL << 30;
};
struct RestartConfig {
  RunningJobs running_jobs = RunningJobs::kReplay;
  std::int64_t worker_crashes_max = 5;  // of one model within the window; 0 = no limit and no backoff
  std::int64_t worker_crash_window_ms = 300000;
};
// Budgets are those of a session whose client names none; omitted: none.
struct SessionConfig {
  std::int64_t ttl_ms = 600000;  // without a request
  std::int64_t turns_max = 8;
  std::int64_t count_max = 10000;
  std::optional<std::int64_t> token_budget;  // prompt and generated tokens
  std::optional<std::int64_t> time_budget_ms;
  std::optional<double> cost_budget;
  double cost_per_prompt_token = 0;
  double cost_per_output_token = 0.000002;
};
// Of one tenant: what stands for a caller of the API, see TenantConfig. 0 is no limit.
struct ThrottleConfig {
  double requests_per_second = 0;
  double tokens_per_second = 0;  // prompt and max_tokens
  double burst_seconds = 10;     // how much of the rates may come at once
};
// Of one tenant. 0 is no limit.
struct QuotaConfig {
  std::int64_t max_concurrent_jobs = 0;  // what comes above it waits
  std::int64_t token_budget_daily = 0;   // prompt and generated tokens, from midnight to midnight UTC
};
// Limits of one tenant's own. An omitted member is that of everybody; 0 is no limit here too.
struct TenantThrottleConfig {
  std::optional<double> requests_per_second, tokens_per_second, burst_seconds;
  ThrottleConfig over(const ThrottleConfig& everybody) const {
    return {.requests_per_second = requests_per_second.value_or(everybody.requests_per_second),
            .tokens_per_second = tokens_per_second.value_or(everybody.tokens_per_second),
            .burst_seconds = burst_seconds.value_or(everybody.burst_seconds)};
  }
};
struct TenantQuotaConfig {
  std::optional<std::int64_t> max_concurrent_jobs, token_budget_daily;
  QuotaConfig over(const QuotaConfig& everybody) const {
    return {.max_concurrent_jobs = max_concurrent_jobs.value_or(everybody.max_concurrent_jobs),
            .token_budget_daily = token_budget_daily.value_or(everybody.token_budget_daily)};
  }
};
// A caller with a token of its own. A caller whose token is no tenant's, or who needs none, counts as a tenant with the
// limits of everybody.
struct TenantConfig {
  std::string id;
  std::string token_file;                        // mode 0600
  std::optional<TenantThrottleConfig> throttle;  // omitted: orchestratord.throttle
  std::optional<TenantQuotaConfig> quotas;       // omitted: orchestratord.quotas
};
struct LimitsConfig {
  std::int64_t max_tokens = 50000;
  std::int64_t prompt_bytes_max = 4 << 20;
  std::int64_t request_bytes_max = 4 << 20;
  std::int64_t request_bytes_in_flight_max = 256 << 20;
  std::int64_t workers_per_gpu = 1;
};
// What clients ask to have kept, sealed: uploads, and results that wait to be read.
struct FilesConfig {
  std::int64_t tenant_bytes_max = 1LL << 30;
  std::int64_t retention_ms =
      30LL * 24 * 3600 * 1000;  // of files and batches; of conversations, from their last use on
  std::int64_t responses_retention_ms = 24LL * 3600 * 1000;  // of responses in the background, from their end on
};
// What is served beside /v2: APIs of other systems, each answered like theirs, and the web console.
struct GatewaysConfig {
  bool anthropic = true;  // /v1/messages and what belongs to it
  bool console = true;    // the page at /
  bool llamacpp = true;   // /completion, /infill, /tokenize, /rerank and others of that server
  bool ollama = true;     // /api/chat and what belongs to it
  bool openai = true;     // /v1/chat/completions and what belongs to it
};
// Where the spans of jobs go, if anywhere: OTLP over HTTP, as JSON.
struct TracingConfig {
  std::string otlp_endpoint;  // "http://host:4318"; /v1/traces below it gets them. Empty: nobody is told
};
struct OrchestratordConfig {
  std::string bind = "127.0.0.1:8080";
  std::vector<std::string> hosts;  // names in the Host header, besides those of this machine and the bind address
  std::vector<std::string> cors_origins;  // sites whose pages may call: "https://chat.example"
  QueueConfig queue;
  SchedulingConfig scheduling;
  QueueOptimizerConfig queue_optimizer;
  EvictionConfig eviction;
  TimeoutConfig timeout;
  HeartbeatConfig heartbeat;
  RetryConfig retry;
  StreamConfig stream;
  PersistenceConfig persistence;
  RestartConfig restart;
  SessionConfig sessions;
  ThrottleConfig throttle;
  QuotaConfig quotas;
  std::vector<TenantConfig> tenants;
  LimitsConfig limits;
  GatewaysConfig gateways;
  FilesConfig files;
  TracingConfig tracing;
  std::int64_t worker_start_timeout_ms = 60000;
  std::int64_t worker_slots = 1;
  std::optional<std::int64_t> worker_context_tokens;  // omitted: the model's own context
  std::int64_t worker_kv_tokens = 0;                  // tokens the cache holds for all slots; 0 = slots x context
  std::int64_t worker_image_tokens_max = 2048;        // of one request; 0: no images
  bool stage_models = true;  // have pools read models that wait for a device into the host's memory
  std::string kv_dtype = "f16";
};
// How the program of an engine comes to this machine.
enum class ProvisioningMode : std::uint8_t { kExternal, kSource, kContainer, kPackage, kBinary };
struct BinaryConfig {
  std::string url;       // https://... or file:/...; an archive, or the program itself
  std::string checksum;  // sha256:HEX
};
struct PackageConfig {
  std::string name, version;
  std::string checksum;                   // of its wheel, sha256:HEX
  std::vector<std::string> dependencies;  // "NAME==VERSION sha256:HEX", every one
  std::string python;                     // interpreter that the environment is made with; empty: python3 of PATH
};
struct ContainerConfig {
  std::string image, tag;
  std::string digest;                // sha256:HEX; empty: whatever the tag names on the day
  std::string runtime;               // podman or docker; empty: the first of the two in PATH
  std::vector<std::string> volumes;  // absolute paths that it may read
};
struct SourceBuildConfig {
  std::vector<std::string> cmake_flags;
  std::string generator;
  std::string target;  // empty: all
};
struct SourceConfig {
  std::string repo;  // https://... or file:///...
  std::string ref;   // a commit, 40 hex digits
  bool submodules = false;
  SourceBuildConfig build;
};
struct ProvisioningConfig {
  ProvisioningMode mode = ProvisioningMode::kExternal;
  std::string version;  // as a person calls it
  SourceConfig source;
  ContainerConfig container;
  PackageConfig package;
  BinaryConfig binary;
};
// What `llorch engine install` and a starting pool may do on this machine. models.pull says whom they may ask for it.
struct InstallPolicyConfig {
  bool allow_binary_downloads = false;
  bool allow_package_installs = false;
  bool allow_container_pulls = false;
  bool allow_source_builds = false;
  bool at_start = false;  // of the pool: install what lacks
  std::string cache_dir;  // empty: ~/.cache/llama-orch/engines
  std::int64_t step_timeout_ms = 3'600'000;
};
// An engine of another system: where it is, or how it is started.
struct EngineConfig {
  std::string name;    // of the model reference engine:NAME
  std::string engine;  // whose API it speaks: llamacpp, openai, tgi, triton, vllm
  std::string
      endpoint;  // http(s)://host[:port][/path] or grpc(s)://host:port; of a started one {port} stands for its port
  std::string model;                               // the engine's name for it; empty: the only one it serves
  std::map<std::string, std::string> field_names;  // of openai: its name of max_tokens or seed in chat completions
  std::string api_key_file;                        // mode 0600; empty: no key
  std::string ca_file;                             // empty: the system's certificates
  std::string proxy;                               // empty: none; the environment is not read
  bool plain_http = false;                         // prompts may go beyond this machine without TLS
  std::int64_t context_tokens = 0;                 // 0: what the engine says
  std::int64_t slots = 1;
  std::int64_t silence_ms = 120'000;
  // Of an engine that pool-managerd starts.
  std::vector<std::string> command;  // {port} and {engine} are replaced; empty: it runs already
  std::map<std::string, std::string> environment;
  std::string device;             // "cpu", "0": where its memory is; empty: it runs already
  std::int64_t memory_bytes = 0;  // of that device
  ProvisioningConfig provisioning;
};
struct PoolManagerdConfig {
  std::string bind = "127.0.0.1:9200";
  std::string advertise;        // host; empty: that of bind
  std::string credential_file;  // mode 0600; empty: pool_credential in the state directory
  std::string pool_id = "pool-1";
  std::optional<std::string> orchestrator_url;  // omitted: orchestratord.bind on this machine; empty: works alone
  std::int64_t heartbeat_interval_ms = 15000;
  std::int64_t worker_start_timeout_ms = 60000;
  std::int64_t worker_health_interval_ms = 10000;
  std::int64_t worker_drain_grace_ms = 30000;
  std::int64_t vram_headroom_bytes = 256LL << 20;
  std::optional<std::int64_t> staging_bytes_max;  // omitted: a quarter of the memory that is left at the start; 0: none
  std::string worker_binary;                      // empty: worker-orcd beside pool-managerd
  std::int64_t worker_threads = 0;                // CPU reference device; 0 = all cores
  std::string worker_ports;                       // FIRST-LAST (port_range.h); empty: the system chooses
  bool worker_step_counters = false;
  std::string worker_speculation = "off";      // or "ngram", "mtp"
  std::int64_t worker_speculation_tokens = 8;  // proposed for a job in a step
  std::vector<EngineConfig> engines;
  InstallPolicyConfig provisioning;
};
struct DevicesConfig {
  bool allow_cpu = false;
  std::optional<std::int64_t> cpu_memory_bytes;  // omitted: half of what the cgroup or MemAvailable leaves
};
// Whether pool-managerd fetches models from elsewhere.
enum class PullPolicy : std::uint8_t {
  kOff,  // never
  kAsk,  // what an operator asks for by name, and nothing else
};
struct PullConfig {
  PullPolicy policy = PullPolicy::kAsk;
  std::vector<std::string> allowed_hosts;  // "host" or ".domain"; empty: every public host
  std::string proxy;                       // empty: none; the environment is not read
  std::string ca_file;                     // empty: the system's
  std::string hub_url = "https://huggingface.co";
  std::string hub_token_file;  // mode 0600; empty: no token
  std::string pypi_url = "https://pypi.org/simple";
  std::string s3_url = "https://s3.amazonaws.com";
  std::string s3_region = "us-east-1";
  std::string s3_key_file;  // mode 0600: "ACCESS_KEY_ID SECRET_ACCESS_KEY"; empty: requests are not signed
  std::int64_t connections = 4;
  std::int64_t bytes_per_second_max = 0;  // of all pulls together; 0 = no limit
  std::int64_t stall_timeout_ms = 30'000;
  std::int64_t attempts_max = 6;
};
struct ModelsConfig {
  std::map<std::string, std::string> aliases;        // name -> file:/abs/path.gguf
  std::map<std::string, std::int64_t> tensor_split;  // alias or reference -> devices that share it; absent: one
  std::map<std::string, std::int64_t> timeout_ms;    // alias or reference -> limit; absent: timeout.default_ms
  std::map<std::string, std::string> chat_format;    // alias or reference -> format; absent: by the chat template
  std::vector<std::string> allowed_roots;            // for file: references, besides the model cache
  std::vector<std::string> watched_directories;      // what appears in them gets a name; they are allowed roots
  std::vector<std::string> preload;  // aliases, names or references that must have a worker at the start
  std::string cache_dir;             // empty: ~/.cache/llama-orch/models
  std::string repacked_dir;          // empty: repacked in the state directory
  std::int64_t repacked_bytes_max = 32LL << 30;
  std::vector<std::string> known_models;  // files like src/orchestratord/models/known_models.json
  PullConfig pull;
};
struct AuthConfig {
  std::string token_file;  // mode 0600; empty: no token, loopback only
  bool optional_on_loopback = false;
  std::vector<std::string> reader_token_files;  // mode 0600; tokens that only read pools and metrics
};
struct LogConfig {
  std::string level = "info";
  std::string format = "json";
};
struct Config {
  OrchestratordConfig orchestratord;
  PoolManagerdConfig pool_managerd;
  DevicesConfig devices;
  ModelsConfig models;
  AuthConfig auth;
  LogConfig log;
};

struct ConfigSources {
  // Named by the user: must exist. Absent: the one that LLORCH_CONFIG names, which must exist, else the default path, if it exists.
  std::optional<std::filesystem::path> file;
  std::function<const char*(const char*)> getenv;
  // Dotted key and text value, as from --set orchestratord.bind=...; strongest.
  std::vector<std::pair<std::string, std::string>> overrides;
};

// Merges, validates and returns the configuration. CONFIG_INVALID names the file, the dotted key and what is allowed
// (OC-CONFIG-6001: unknown keys are errors). Environment: LLORCH_<DOTTED_KEY_WITH_UNDERSCORES>, e.g.
// LLORCH_ORCHESTRATORD_QUEUE_CAPACITY.
base::Result<Config> load_config(const ConfigSources& sources);
// The file that load_config() reads; none: there is none at the default path.
std::optional<std::filesystem::path> configuration_file(const ConfigSources& sources);
// The dotted keys whose values differ, in the schema's order; a list or a mapping is one key.
std::vector<std::string> changed_keys(const Config& before, const Config& after);
// Deterministic JSON Schema of the file (OC-CONFIG-6010).
std::string config_json_schema();
// `config` as a JSON object of that schema. In place of the names of files with secrets stands only that there are some.
std::string redacted_json(Config config);
// The token of auth.token_file or LLORCH_API_TOKEN(_FILE); empty if none is configured. Refuses files others can read
// and tokens under 32 characters.
base::Result<std::string> load_api_token(const Config& config, const std::function<const char*(const char*)>& getenv);
// The token that callers of a worker have: that of its pool, which comes in LLORCH_WORKER_CONTROL_TOKEN; of a worker that is used
// alone, the operator's. Errors: as load_api_token().
base::Result<std::string> load_worker_token(const std::function<const char*(const char*)>& getenv);
struct TenantToken {
  std::string tenant_id;
  std::string token;
};
// Those of orchestratord.tenants, in its order. Refuses what load_api_token() refuses, a token that two of them or a tenant
// and the operator share, and tenants without a token of the operator: pools and administration need one.
base::Result<std::vector<TenantToken>> load_tenant_tokens(const Config& config, std::string_view api_token);
// Those of auth.reader_token_files. Refuses what load_api_token() refuses, and readers without a token of the operator.
base::Result<std::vector<std::string>> load_reader_tokens(const Config& config, std::string_view api_token);
// One line of a file that nobody else can read, without the white space at its end. Errors: CONFIG_INVALID, IO_ERROR.
base::Result<std::string> read_secret(const std::string& file);
// The text of persistence.postgresql.connection_file; empty if none is configured. Refuses files others can read.
base::Result<std::string> load_postgresql_connection(const Config& config);

}  // namespace llorch::config
