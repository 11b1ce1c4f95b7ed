#include "wire/pool.h"

#include "wire/device_mask.h"
#include "wire/field.h"
#include "wire/model_facts_fields.h"
#include "wire/told_facts.h"

namespace llorch::wire {

constexpr double kSlotsMax = 1024;     // of a worker
constexpr double kNameMax = 256;       // bytes of an id, a build, a device's name
constexpr double kSentenceMax = 4096;  // and of a path

template <>
struct EnumNames<WorkerStatus> {
  static constexpr auto names = std::array{std::pair{WorkerStatus::kStarting, std::string_view("starting")},
                                           std::pair{WorkerStatus::kReady, std::string_view("ready")},
                                           std::pair{WorkerStatus::kBusy, std::string_view("busy")},
                                           std::pair{WorkerStatus::kDraining, std::string_view("draining")},
                                           std::pair{WorkerStatus::kFailed, std::string_view("failed")}};
};
template <>
struct EnumNames<PoolStatus> {
  static constexpr auto names = std::array{std::pair{PoolStatus::kHealthy, std::string_view("healthy")},
                                           std::pair{PoolStatus::kUnhealthy, std::string_view("unhealthy")},
                                           std::pair{PoolStatus::kDraining, std::string_view("draining")},
                                           std::pair{PoolStatus::kOffline, std::string_view("offline")}};
};
template <>
struct EnumNames<FailureCategory> {
  static constexpr auto names =
      std::array{std::pair{FailureCategory::kCrash, std::string_view("crash")},
                 std::pair{FailureCategory::kOom, std::string_view("oom")},
                 std::pair{FailureCategory::kTimeout, std::string_view("timeout")},
                 std::pair{FailureCategory::kHang, std::string_view("hang")},
                 std::pair{FailureCategory::kExplicitStop, std::string_view("explicit_stop")}};
};

static base::Result<> check_names(const std::vector<std::string>& names, std::string_view field) {
  for (const std::string& name : names) {
    if (static_cast<double>(name.size()) <= kNameMax) continue;
    return field_error(field, "length",
                       fmt::format("{} holds a text of {} bytes; allowed are {}", field, name.size(), kNameMax));
  }
  return {};
}

template <>
struct Table<GpuInfo> {
  using S = GpuInfo;
  static Fields fields() {
    return {required("gpu_id", &S::gpu_id, "Without a comma: that makes a mask of several.", {1, 128}),
            optional("model", &S::model, "Of an engine of another system: what it is and where.", {0, kSentenceMax}),
            optional("device_class", &S::device_class, "", {0, kNameMax}),
            optional("memory_architecture", &S::memory_architecture, "", {0, kNameMax}),
            optional("compute_capability", &S::compute_capability, "", {0, kNameMax}),
            required("vram_total_bytes", &S::vram_total_bytes, "", {0, kReportedBytesMax}),
            required("vram_allocated_bytes", &S::vram_allocated_bytes, "", {0, kReportedBytesMax}),
            required("vram_available_bytes", &S::vram_available_bytes, "", {0, kReportedBytesMax}),
            optional("healthy", &S::healthy),
            optional("fault", &S::fault, "Why it is not healthy.", {0, kSentenceMax}),
            optional("fault_kind", &S::fault_kind,
                     "lost: the driver does not reach it; reset: it needs a reset; ecc: "
                     "its memory had errors that could not be corrected; kernels: this "
                     "build has none for it.",
                     {0, kNameMax}),
            optional("temperature_celsius", &S::temperature_celsius),
            optional("utilization_percent", &S::utilization_percent),
            optional("power_milliwatts", &S::power_milliwatts),
            optional("ecc_corrected_errors", &S::ecc_corrected_errors),
            optional("ecc_uncorrected_errors", &S::ecc_uncorrected_errors),
            optional("throttle_reasons", &S::throttle_reasons, "Why its clocks are lower than they could be.", {0, 64}),
            optional("foreign_processes", &S::foreign_processes, "That use it and are no workers of this pool."),
            optional("foreign_bytes", &S::foreign_bytes, "Of its memory that they hold."),
            optional("workers", &S::workers, "", {0, 1024})};
  }
  static base::Result<> validate(const S& gpu) {
    if (gpu.gpu_id.find(',') != std::string::npos) {
      return field_error("gpu_id", "comma", "gpu_id must not contain a comma");
    }
    TRY(check_names(gpu.throttle_reasons, "throttle_reasons"));
    return check_names(gpu.workers, "workers");
  }
};
template <>
struct Table<DeviceMemory> {
  using S = DeviceMemory;
  static Fields fields() {
    return {
        required("weights_bytes", &S::weights_bytes, "", {0, kReportedBytesMax}),
        required("cache_bytes", &S::cache_bytes, "Cache pages and other state of its slots.", {0, kReportedBytesMax}),
        required("workspace_bytes", &S::workspace_bytes, "Activations, scratch, tables.", {0, kReportedBytesMax})};
  }
};
template <>
struct Table<WorkerInfo> {
  using S = WorkerInfo;
  static Fields fields() {
    return {required("worker_id", &S::worker_id, "", {0, kNameMax}),
            required("model_ref", &S::model_ref, "", {0, kSentenceMax}),
            optional("model_digest", &S::model_digest, "", {0, kNameMax}),
            required("gpu_id", &S::gpu_id, "", {1, 128}),
            required("status", &S::status),
            optional("load_percent", &S::load_percent, "While it starts.", {0, 100}),
            optional("uri", &S::uri, "", {0, kSentenceMax}),
            optional("vram_bytes", &S::vram_bytes, "On all its devices.", {0, kReportedBytesMax}),
            optional("vram_bytes_by_device", &S::vram_bytes_by_device, "Of several devices, in the order of gpu_id.",
                     {0, kMaskDevicesMax}),
            optional("memory_by_device", &S::memory_by_device,
                     "What it is for on each of its devices, in the order of gpu_id; omitted: not told yet.",
                     {0, kMaskDevicesMax}),
            optional("pid", &S::pid),
            optional("started_at", &S::started_at, "", {0, kNameMax}),
            optional("slots_total", &S::slots_total, "", {1, kSlotsMax}),
            optional("context_length", &S::context_length),
            optional("image_tokens_max", &S::image_tokens_max),
            optional("engine_build", &S::engine_build, "", {0, kNameMax}),
            optional("numerics", &S::numerics, "", {0, kNameMax}),
            optional("device_class", &S::device_class, "", {0, kNameMax}),
            optional("sampler", &S::sampler, "", {0, kNameMax}),
            optional("kv_dtype", &S::kv_dtype, "", {0, kNameMax}),
            optional("kv_pages_total", &S::kv_pages_total, "", {0}),
            optional("kv_pages_used", &S::kv_pages_used, "", {0}),
            optional("prefix_hit_tokens", &S::prefix_hit_tokens, "Prompt tokens found in the prefix cache.", {0}),
            optional("prefix_miss_tokens", &S::prefix_miss_tokens, "Prompt tokens computed.", {0})};
  }
  static base::Result<> validate(const S& worker) {
    for (const std::int64_t bytes : worker.vram_bytes_by_device) {
      if (bytes < 0 || static_cast<double>(bytes) > kReportedBytesMax) {
        return field_error("vram_bytes_by_device", "range", "vram_bytes_by_device must be numbers of bytes");
      }
    }
    return check_device_mask(worker.gpu_id, "gpu_id");
  }
};
template <>
struct Table<WatchedModel> {
  using S = WatchedModel;
  static Fields fields() {
    return {
        required("model_id", &S::model_id, "", {1, 128}), required("model_ref", &S::model_ref, "", {1, 4096}),
        optional(
            "stamp", &S::stamp,
            "Another one: the file has changed. Omitted: it is not known what model_ref, a file or a directory, holds.",
            {0, 64})};
  }
};
template <>
struct Table<StagedModel> {
  using S = StagedModel;
  static Fields fields() {
    return {required("model_ref", &S::model_ref, "", {1, 4096}), required("bytes", &S::bytes, "", {0}),
            required("bytes_total", &S::bytes_total, "More than bytes: it is still being read.", {0}),
            required("locked", &S::locked, "Without it the system may take the memory back.")};
  }
};
template <>
struct Table<StageRequest> {
  static Fields fields() { return {required("model_ref", &StageRequest::model_ref, "", {1, 4096})}; }
};
template <>
struct Table<PoolState> {
  using S = PoolState;
  static Fields fields() {
    return {required("pool_id", &S::pool_id),
            optional("endpoint", &S::endpoint),
            optional("version", &S::version),
            required("timestamp_ms", &S::timestamp_ms),
            optional("uptime_seconds", &S::uptime_seconds),
            optional("sequence", &S::sequence, "", {0}),
            optional("boot_id", &S::boot_id),
            required("gpus", &S::gpus, "", {0, 256}),
            required("workers", &S::workers, "", {0, 1024}),
            optional("watched_models", &S::watched_models, "In the directories that the pool watches.", {0, 1000}),
            optional("staged_models", &S::staged_models, "In the memory of its host.", {0, 1000}),
            optional("staging_bytes_max", &S::staging_bytes_max, "Host memory that staged models may take.", {0})};
  }
};
template <>
struct Table<PoolInfo> {
  using S = PoolInfo;
  static Fields fields() {
    return {required("pool_id", &S::pool_id),
            required("status", &S::status),
            required("endpoint", &S::endpoint),
            optional("version", &S::version),
            required("last_heartbeat_ms", &S::last_heartbeat_ms, "Milliseconds ago."),
            required("gpus", &S::gpus),
            required("workers", &S::workers)};
  }
};
template <>
struct Table<PoolList> {
  static Fields fields() { return {required("pools", &PoolList::pools)}; }
};
template <>
struct Table<RegisterReply> {
  using S = RegisterReply;
  static Fields fields() {
    return {required("pool_id", &S::pool_id), required("status", &S::status),
            optional("heartbeat_interval_ms", &S::heartbeat_interval_ms)};
  }
};
template <>
struct Table<HeartbeatReply> {
  using S = HeartbeatReply;
  static Fields fields() {
    return {required("status", &S::status), optional("next_heartbeat_ms", &S::next_heartbeat_ms)};
  }
};
template <>
struct Table<CacheCleared> {
  using S = CacheCleared;
  static Fields fields() { return {required("cleared", &S::cleared), required("failed", &S::failed)}; }
};
template <>
struct Table<StartWorkerRequest> {
  using S = StartWorkerRequest;
  static Fields fields() {
    return {required("worker_id", &S::worker_id, "", {1, 64}),
            required("model_ref", &S::model_ref, "", {1, 4096}),
            required("gpu_id", &S::gpu_id, "Device mask: 0, cpu; of devices that share the model 0,1.", {1, 128}),
            optional("context_tokens", &S::context_tokens, "", {1}),
            optional("slots", &S::slots, "", {1, kSlotsMax}),
            optional("kv_tokens", &S::kv_tokens, "", {0, 1e12}),
            optional("kv_dtype", &S::kv_dtype),
            optional("image_tokens_max", &S::image_tokens_max, "Of one request; 0: takes no images.", {0, 16384})};
  }
  static base::Result<> validate(const S& r) { return check_device_mask(r.gpu_id, "gpu_id"); }
};
template <>
struct Table<StartWorkerReply> {
  using S = StartWorkerReply;
  static Fields fields() { return {required("worker_id", &S::worker_id), required("status", &S::status)}; }
};
template <>
struct Table<StopWorkerRequest> {
  static Fields fields() { return {required("worker_id", &StopWorkerRequest::worker_id, "", {1, 64})}; }
};
template <>
struct Table<WorkerStatusReply> {
  using S = WorkerStatusReply;
  static Fields fields() { return {required("worker_id", &S::worker_id), required("status", &S::status)}; }
};
template <>
struct Table<ReadyCallback> {
  using S = ReadyCallback;
  static Fields fields() {
    return {
        required("worker_id", &S::worker_id),
        required("spawn_token", &S::spawn_token),
        required("model_ref", &S::model_ref),
        optional("model_digest", &S::model_digest, "", {0, kNameMax}),
        optional("model_stamp", &S::model_stamp, "Of the files that the digest is of; omitted: the pool hashes them."),
        required("uri", &S::uri, "", {0, kSentenceMax}),
        required("vram_bytes", &S::vram_bytes, "On all its devices.", {0}),
        optional("memory_bytes", &S::memory_bytes, "", {0}),
        optional("vram_bytes_by_device", &S::vram_bytes_by_device, "Of several devices, by rank.",
                 {0, kMaskDevicesMax}),
        optional("memory_by_device", &S::memory_by_device, "What it is for on each device, by rank.",
                 {0, kMaskDevicesMax}),
        optional("memory_architecture", &S::memory_architecture),
        optional("worker_type", &S::worker_type),
        optional("capabilities", &S::capabilities),
        optional("slots_total", &S::slots_total, "", {1, kSlotsMax}),
        optional("context_length", &S::context_length),
        optional("image_tokens_max", &S::image_tokens_max),
        optional("engine_build", &S::engine_build, "", {0, kNameMax}),
        optional("numerics", &S::numerics, "", {0, kNameMax}),
        optional("device_class", &S::device_class, "", {0, kNameMax}),
        optional("sampler", &S::sampler, "", {0, kNameMax}),
        optional("kv_dtype", &S::kv_dtype, "", {0, kNameMax})};
  }
};
template <>
struct Table<ReadyReply> {
  static Fields fields() { return {required("status", &ReadyReply::status)}; }
};
template <>
struct Table<LoadProgress> {
  using S = LoadProgress;
  static Fields fields() {
    return {required("worker_id", &S::worker_id), required("spawn_token", &S::spawn_token),
            required("percent", &S::percent, "Of the model's bytes, in steps of 25.", {0, 100})};
  }
};
template <>
struct Table<WorkerReady> {
  using S = WorkerReady;
  static Fields fields() { return {required("pool_id", &S::pool_id), required("worker", &S::worker)}; }
};
template <>
struct Table<WorkerFailed> {
  using S = WorkerFailed;
  static Fields fields() {
    return {required("worker_id", &S::worker_id, "", {0, kNameMax}),
            required("pool_id", &S::pool_id, "", {0, kNameMax}),
            optional("gpu_id", &S::gpu_id, "", {0, kNameMax}),
            required("exit_code", &S::exit_code),
            optional("category", &S::category),
            optional("error_code", &S::error_code, "", {0, kNameMax}),
            optional("error_message", &S::error_message, "", {0, kSentenceMax}),
            optional("vram_released_bytes", &S::vram_released_bytes),
            optional("uptime_seconds", &S::uptime_seconds)};
  }
};

namespace {

base::Result<> check_told(const ModelFacts& facts) {
  constexpr std::size_t kReferenceBytesMax = 4096, kNameBytesMax = 256;
  const auto check_text = [](std::string_view field, const std::string& text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) return base::Result<>();
    return base::Result<>(field_error(
        field, "length", fmt::format("{} holds a text of {} bytes; allowed are {}", field, text.size(), bytes_max)));
  };
  TRY(check_text("model_ref", facts.model_ref, kReferenceBytesMax));
  TRY(check_text("digest", facts.digest, kNameBytesMax));
  TRY(check_text("architecture", facts.architecture, kNameBytesMax));
  TRY(check_text("quant_kind", facts.quant_kind, kNameBytesMax));
  if (facts.device) TRY(check_text("device", *facts.device, kNameBytesMax));
  for (const std::string& name : facts.parameters.value_or(std::vector<std::string>()))
    TRY(check_text("parameters", name, kNameBytesMax));
  const std::pair<std::string_view, std::int64_t> counts[] = {
      {"vocab_size", facts.vocab_size},
      {"hidden_size", facts.hidden_size.value_or(0)},
      {"context_length", facts.context_length},
      {"slots", facts.slots},
      {"embedding_dimensions", facts.embedding_dimensions.value_or(0)}};
  for (const auto& [field, count] : counts) {
    if (count >= 0 && static_cast<double>(count) <= kReportedBytesMax) continue;
    return field_error(field, "range", fmt::format("{} must be between 0 and {:.0f}", field, kReportedBytesMax));
  }
  return {};
}

}  // namespace

base::Result<ModelFacts> decode_told_facts(std::string_view json) {
  auto facts = TRY(decode<ModelFacts>(json));
  TRY(check_told(facts));
  return facts;
}

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(PoolState)
LLORCH_INSTANTIATE_WIRE(PoolList)
LLORCH_INSTANTIATE_WIRE(RegisterReply)
LLORCH_INSTANTIATE_WIRE(CacheCleared)
LLORCH_INSTANTIATE_WIRE(HeartbeatReply)
LLORCH_INSTANTIATE_WIRE(StartWorkerRequest)
LLORCH_INSTANTIATE_WIRE(StartWorkerReply)
LLORCH_INSTANTIATE_WIRE(StopWorkerRequest)
LLORCH_INSTANTIATE_WIRE(WorkerStatusReply)
LLORCH_INSTANTIATE_WIRE(StageRequest)
LLORCH_INSTANTIATE_WIRE(StagedModel)
LLORCH_INSTANTIATE_WIRE(WorkerInfo)
LLORCH_INSTANTIATE_WIRE(ReadyCallback)
LLORCH_INSTANTIATE_WIRE(ReadyReply)
LLORCH_INSTANTIATE_WIRE(LoadProgress)
LLORCH_INSTANTIATE_WIRE(WorkerReady)
LLORCH_INSTANTIATE_WIRE(WorkerFailed)
LLORCH_INSTANTIATE_WIRE(ModelFacts)
LLORCH_INSTANTIATE_ENUM(WorkerStatus)
LLORCH_INSTANTIATE_ENUM(PoolStatus)
LLORCH_INSTANTIATE_ENUM(FailureCategory)
LLORCH_INSTANTIATE_ENUM(PromptForm)
