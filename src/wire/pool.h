#pragma once
// Wire types between pool-managerd, orchestratord and workers. Field tables: pool.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llorch::wire {

enum class WorkerStatus : std::uint8_t { kStarting, kReady, kBusy, kDraining, kFailed };
enum class PoolStatus : std::uint8_t { kHealthy, kUnhealthy, kDraining, kOffline };
enum class PromptForm : std::uint8_t { kTokens, kText };
enum class FailureCategory : std::uint8_t { kCrash, kOom, kTimeout, kHang, kExplicitStop };

struct GpuInfo {
  std::string gpu_id;  // "0", "1", ... or "cpu" for the reference device
  std::string model;
  std::string device_class;         // "cpu-x86", or GPU name + sm
  std::string memory_architecture;  // "vram-only" | "host"
  std::optional<std::string> compute_capability;
  std::int64_t vram_total_bytes = 0;
  std::int64_t vram_allocated_bytes = 0;  // accounted to our workers
  std::int64_t vram_available_bytes = 0;  // min(total - allocated - headroom, free)
  bool healthy = true;
  std::optional<std::string> fault;  // why it is not: what the driver said, or that this build has no kernels for it
  std::optional<std::string> fault_kind;  // "lost", "reset", "ecc" or "kernels"
  // As the driver last said; absent: it does not tell.
  std::optional<std::int64_t> temperature_celsius;
  std::optional<std::int64_t> utilization_percent;
  std::optional<std::int64_t> power_milliwatts;
  std::optional<std::int64_t> ecc_corrected_errors;  // since the driver began or the device was reset
  std::optional<std::int64_t> ecc_uncorrected_errors;
  std::vector<std::string> throttle_reasons;  // why its clocks are lower than they could be; empty: they are not
  std::int64_t foreign_processes = 0;         // that use it and are no workers of this pool
  std::int64_t foreign_bytes = 0;             // of its memory that they hold, as far as the driver tells
  std::vector<std::string> workers;
};

// What a worker holds on one device, by what it is for; the three are all of it.
struct DeviceMemory {
  std::int64_t weights_bytes = 0;
  std::int64_t cache_bytes = 0;      // cache pages and other state of its slots
  std::int64_t workspace_bytes = 0;  // activations, scratch, tables
};

struct WorkerInfo {
  std::string worker_id;
  std::string model_ref;
  std::string model_digest;
  std::string gpu_id;  // its device mask (device_mask.h): "0", "cpu"; of several devices "0,1"
  WorkerStatus status = WorkerStatus::kStarting;
  std::optional<std::int64_t> load_percent{};        // while it starts: of its model, in steps of 25
  std::string uri;                                   // "" until ready
  std::int64_t vram_bytes = 0;                       // on all its devices
  std::vector<std::int64_t> vram_bytes_by_device{};  // by rank; empty: of one device, or not told yet
  std::vector<DeviceMemory> memory_by_device{};      // by rank, of every device; empty: not told (yet)
  std::int64_t pid = 0;
  std::string started_at;
  std::int64_t slots_total = 1;
  std::int64_t context_length = 0;
  std::int64_t image_tokens_max = 0;
  std::string engine_build;
  std::string numerics;
  std::string device_class;
  std::string sampler;
  std::string kv_dtype;
  // Of its cache, at its last health probe; total 0: it told none. What is used belongs to running jobs.
  std::int64_t kv_pages_total = 0;
  std::int64_t kv_pages_used = 0;
  // Prompt tokens since it is ready, at its last health probe.
  std::int64_t prefix_hit_tokens = 0;   // found in the prefix cache
  std::int64_t prefix_miss_tokens = 0;  // computed
};

// A model that somebody has put into a directory that the pool watches.
struct WatchedModel {
  std::string model_id;   // made of its file name
  std::string model_ref;  // file:/absolute/path
  std::string stamp;      // another one: the file has changed
};
// Files of a model that the pool keeps in the host's memory, so that a worker of it starts without the disk.
struct StagedModel {
  std::string model_ref;
  std::int64_t bytes = 0;
  std::int64_t bytes_total = 0;  // of the model; more than `bytes`: it is still being read
  bool locked = false;           // false: the system lets nobody lock so much, and may take the memory back
};
// POST and DELETE /v2/models/staged of a pool manager
struct StageRequest {
  std::string model_ref;
};

// GET /v2/state; also the body of a heartbeat and of a registration.
struct PoolState {
  std::string pool_id;
  std::string endpoint;  // base URL where this pool manager answers
  std::string version;
  std::int64_t timestamp_ms = 0;
  std::int64_t uptime_seconds = 0;
  std::int64_t sequence = 0;  // rises with every report of one boot; 0: not counted
  // Changes when pool-managerd restarts: worker ids of another boot are gone.
  std::string boot_id;
  std::vector<GpuInfo> gpus;
  std::vector<WorkerInfo> workers;
  std::vector<WatchedModel> watched_models;  // in the directories that the pool watches
  std::vector<StagedModel> staged_models;    // in the memory of its host
  std::int64_t staging_bytes_max = 0;        // that those may take
};

// GET /v2/pools: the pools as orchestratord sees them.
struct PoolInfo {
  std::string pool_id;
  PoolStatus status = PoolStatus::kHealthy;
  std::string endpoint;
  std::string version;
  std::int64_t last_heartbeat_ms = 0;  // ago
  std::vector<GpuInfo> gpus;
  std::vector<WorkerInfo> workers;
};
struct PoolList {
  std::vector<PoolInfo> pools;
};

// POST /v2/pools/register
struct RegisterReply {
  std::string pool_id;
  std::string status;  // "registered"
  std::int64_t heartbeat_interval_ms = 15000;
};
// POST /v2/pools/{id}/heartbeat
struct HeartbeatReply {
  std::string status;
  std::int64_t next_heartbeat_ms = 15000;
};

// POST /v2/cache/clear, of orchestratord
struct CacheCleared {
  std::vector<std::string> cleared;  // workers that forget their prefix cache before their next step
  std::vector<std::string> failed;   // workers that did not answer
};

// POST /v2/workers/start
struct StartWorkerRequest {
  std::string worker_id;  // chosen by orchestratord ("worker-<uuid>"), so that a repeated call starts nothing twice
  std::string model_ref;  // normalised, file:/absolute/path.gguf
  std::string gpu_id;     // a device mask
  std::optional<std::int64_t> context_tokens;
  std::int64_t slots = 1;
  std::int64_t kv_tokens = 0;  // of the cache of all slots; 0 = slots x context
  std::string kv_dtype = "f16";
  std::int64_t image_tokens_max = 0;  // of one request
};
struct StartWorkerReply {
  std::string worker_id;
  std::string status;  // "starting"
};
// POST /v2/workers/stop
struct StopWorkerRequest {
  std::string worker_id;
};
struct WorkerStatusReply {
  std::string worker_id;
  std::string status;
};

// POST /v2/internal/workers/ready, worker -> pool-managerd
struct ReadyCallback {
  std::string worker_id;
  std::string spawn_token;
  std::string model_ref;
  std::string model_digest;
  std::string model_stamp{};  // of the files that the digest is of (engine/io/model_digest.h)
  std::string uri;
  std::int64_t vram_bytes = 0;                       // on all its devices
  std::int64_t memory_bytes = 0;                     // same figure; both spellings are on the wire
  std::vector<std::int64_t> vram_bytes_by_device{};  // by rank; empty: of one device
  std::vector<DeviceMemory> memory_by_device{};      // by rank, of every device; empty: not told
  std::string memory_architecture;
  std::string worker_type;
  std::vector<std::string> capabilities;
  std::int64_t slots_total = 1;
  std::int64_t context_length = 0;
  std::int64_t image_tokens_max = 0;
  std::string engine_build;
  std::string numerics;
  std::string device_class;
  std::string sampler;
  std::string kv_dtype;
};
struct ReadyReply {
  std::string status;  // "ready"
};
// Which engine a build is of: an adapter tells its engine's as KIND/VERSION, and a build of our own has no slash.
inline constexpr std::string_view kOwnEngine = "llama-orch";
constexpr std::string_view engine_of(std::string_view engine_build) {
  const std::size_t slash = engine_build.find('/');
  return slash == std::string_view::npos ? kOwnEngine : engine_build.substr(0, slash);
}
// POST /v2/internal/workers/progress, worker -> pool-managerd, while the model is loaded (M0-W-1621).
struct LoadProgress {
  std::string worker_id;
  std::string spawn_token;
  std::int64_t percent = 0;  // 0, 25, 50, 75, 100
};

// POST /v2/internal/workers/ready, pool-managerd -> orchestratord. Sent at once, so nobody waits for a heartbeat.
struct WorkerReady {
  std::string pool_id;
  WorkerInfo worker;
};

// POST /v2/internal/workers/failed, pool-managerd -> orchestratord: a worker left, or never became ready.
struct WorkerFailed {
  std::string worker_id;
  std::string pool_id;
  std::string gpu_id;          // its device mask
  std::int64_t exit_code = 0;  // 128 + signal when killed
  FailureCategory category = FailureCategory::kCrash;
  std::string error_code;  // of the error table: WORKER_START_FAILED, WORKER_START_TIMEOUT, WORKER_RESET, ...
  std::string error_message;
  std::int64_t vram_released_bytes = 0;
  std::int64_t uptime_seconds = 0;
};

// What a model makes of images: enough to count their tokens without decoding one.
struct ModelImages {
  std::int64_t image_token = 0;      // stands in a rendered prompt once per image
  std::int64_t pixels_per_side = 0;  // of the square that becomes one token
  std::int64_t pixels_min = 0;       // of an image, after resizing
  std::int64_t pixels_max = 0;
  std::int64_t tokens_max = 0;  // of all images of one request
};

// GET /v2/models/describe?ref=file:/path : what the file says, and what a worker of it would need.
struct ModelFacts {
  std::string model_ref;
  std::string digest;  // "sha256:<hex>"
  std::string architecture;
  std::string quant_kind;
  std::int64_t size_bytes = 0;
  std::int64_t vocab_size = 0;
  // Elements of a token's row between two layers; omitted: not known, as of a model of another system's engine.
  std::optional<std::int64_t> hidden_size;
  std::int64_t context_length = 0;
  // Memory for one worker with `context_length` tokens in each of `slots` slots, on each of its devices.
  std::int64_t slots = 1;
  std::int64_t memory_bytes = 0;
  std::int64_t devices = 1;           // that share the model
  std::optional<ModelImages> images;  // omitted: takes none
  // Elements of a vector of a model of embeddings, which makes nothing else; omitted: a model that writes.
  std::optional<std::int64_t> embedding_dimensions;
  // What a worker of the model is given: token ids, or the text, which only its engine can count.
  PromptForm takes = PromptForm::kTokens;
  // Whether a run can be repeated bit by bit. Else a job that is lost after its first token ends there.
  bool replayable = true;
  std::optional<std::string> device;  // a worker runs on this device and no other; omitted: wherever it fits
  // Fields of sampling that its engine knows; any other one is refused. Omitted: all of them.
  std::optional<std::vector<std::string>> parameters;
  std::optional<bool> reranks;  // true: a model of scores, which makes nothing else

  bool writes() const { return !embedding_dimensions && !reranks.value_or(false); }
};

}  // namespace llorch::wire
