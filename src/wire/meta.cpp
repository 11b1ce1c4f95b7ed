#include "wire/meta.h"

#include "wire/field.h"
#include "wire/health_reason_fields.h"
#include "wire/model_facts_fields.h"

namespace llorch::wire {

template <>
struct Table<PoolHealth> {
  using S = PoolHealth;
  static Fields fields() {
    return {required("pool_id", &S::pool_id), required("status", &S::status), required("gpus", &S::gpus),
            required("workers", &S::workers)};
  }
};
template <>
struct EnumNames<PreloadState> {
  static constexpr auto names = std::array{std::pair{PreloadState::kLoading, std::string_view("loading")},
                                           std::pair{PreloadState::kReady, std::string_view("ready")},
                                           std::pair{PreloadState::kWaiting, std::string_view("waiting")}};
};
template <>
struct Table<PreloadStatus> {
  using S = PreloadStatus;
  static Fields fields() {
    return {required("model", &S::model),
            required("state", &S::state, "waiting: the last attempt failed, the next one follows."),
            required("attempts", &S::attempts), optional("error_code", &S::error_code, "Of the last attempt."),
            optional("error_message", &S::error_message)};
  }
};
template <>
struct Table<HealthReply> {
  using S = HealthReply;
  static Fields fields() {
    return {required("status", &S::status),
            optional("ready", &S::ready, "A pool is healthy and every model of models.preload has a worker."),
            optional("reasons", &S::reasons, "Why it is degraded."),
            required("uptime_seconds", &S::uptime_seconds),
            required("pools", &S::pools),
            optional("preloads", &S::preloads, "The models of models.preload.")};
  }
};
template <>
struct Table<VersionReply> {
  using S = VersionReply;
  static Fields fields() {
    return {required("api_version", &S::api_version), required("version", &S::version), required("build", &S::build)};
  }
};
template <>
struct Table<EngineCapability> {
  using S = EngineCapability;
  static Fields fields() {
    return {required("engine", &S::engine),
            required("engine_version", &S::engine_version),
            optional("sampler_profile_version", &S::sampler_profile_version),
            required("ctx_max", &S::ctx_max),
            required("max_tokens_out", &S::max_tokens_out),
            required("slots_total", &S::slots_total),
            required("batching", &S::batching),
            required("supported_workloads", &S::supported_workloads),
            optional("pools", &S::pools)};
  }
};
template <>
struct Table<FeatureFlags> {
  using S = FeatureFlags;
  static Fields fields() {
    return {required("determinism", &S::determinism), required("streaming", &S::streaming),
            required("sessions", &S::sessions), required("cancellation", &S::cancellation)};
  }
};
template <>
struct Table<ServiceLimits> {
  using S = ServiceLimits;
  static Fields fields() {
    return {required("max_context_length", &S::max_context_length),
            required("max_batch_size", &S::max_batch_size),
            required("queue_capacity", &S::queue_capacity),
            required("max_tokens", &S::max_tokens),
            required("prompt_bytes_max", &S::prompt_bytes_max),
            required("request_bytes_max", &S::request_bytes_max),
            required("session_ttl_ms", &S::session_ttl_ms),
            required("session_turns_max", &S::session_turns_max),
            required("sessions_max", &S::sessions_max),
            required("requests_per_second", &S::requests_per_second, "Of one caller; 0 is no limit."),
            required("tokens_per_second", &S::tokens_per_second)};
  }
};
template <>
struct Table<ModelCapability> {
  using S = ModelCapability;
  static Fields fields() {
    return {required("model_digest", &S::model_digest),
            required("model_ids", &S::model_ids, "That requests may name it by."),
            required("ctx_max", &S::ctx_max),
            required("max_tokens_out", &S::max_tokens_out),
            required("slots_total", &S::slots_total),
            required("image_tokens_max", &S::image_tokens_max, "Of one request; 0: takes no images.")};
  }
};
template <>
struct Table<CapabilitiesReply> {
  using S = CapabilitiesReply;
  static Fields fields() {
    return {required("api_version", &S::api_version),
            required("version", &S::version),
            required("engines", &S::engines),
            optional("models", &S::models, "Limits of each model that has a worker now."),
            required("features", &S::features),
            required("limits", &S::limits)};
  }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(HealthReply)
LLORCH_INSTANTIATE_WIRE(VersionReply)
LLORCH_INSTANTIATE_WIRE(CapabilitiesReply)
LLORCH_INSTANTIATE_ENUM(PreloadState)
