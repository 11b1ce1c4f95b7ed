#include "wire/meta.h"

#include "wire/field.h"
#include "wire/model_facts_fields.h"

namespace llorch::wire {

template <>
struct Table<PoolHealth> {
  using S = PoolHealth;
  static constexpr auto fields = std::tuple{required("pool_id", &S::pool_id), required("status", &S::status),
                                            required("gpus", &S::gpus), required("workers", &S::workers)};
};
template <>
struct Table<HealthReason> {
  using S = HealthReason;
  static constexpr auto fields = std::tuple{required("code", &S::code), required("human", &S::human)};
};
template <>
struct Table<HealthReply> {
  using S = HealthReply;
  static constexpr auto fields =
      std::tuple{required("status", &S::status), optional("reasons", &S::reasons, "Why it is degraded."),
                 required("uptime_seconds", &S::uptime_seconds), required("pools", &S::pools)};
};
template <>
struct Table<VersionReply> {
  using S = VersionReply;
  static constexpr auto fields = std::tuple{required("api_version", &S::api_version), required("version", &S::version),
                                            required("build", &S::build)};
};
template <>
struct Table<EngineCapability> {
  using S = EngineCapability;
  static constexpr auto fields = std::tuple{required("engine", &S::engine),
                                            required("engine_version", &S::engine_version),
                                            optional("sampler_profile_version", &S::sampler_profile_version),
                                            required("ctx_max", &S::ctx_max),
                                            required("max_tokens_out", &S::max_tokens_out),
                                            required("slots_total", &S::slots_total),
                                            required("supported_workloads", &S::supported_workloads),
                                            optional("pools", &S::pools)};
};
template <>
struct Table<FeatureFlags> {
  using S = FeatureFlags;
  static constexpr auto fields =
      std::tuple{required("determinism", &S::determinism), required("streaming", &S::streaming),
                 required("sessions", &S::sessions), required("cancellation", &S::cancellation)};
};
template <>
struct Table<ServiceLimits> {
  using S = ServiceLimits;
  static constexpr auto fields =
      std::tuple{required("max_context_length", &S::max_context_length),
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
};
template <>
struct Table<CapabilitiesReply> {
  using S = CapabilitiesReply;
  static constexpr auto fields =
      std::tuple{required("api_version", &S::api_version), required("version", &S::version),
                 required("engines", &S::engines), required("features", &S::features), required("limits", &S::limits)};
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(HealthReply)
LLORCH_INSTANTIATE_WIRE(VersionReply)
LLORCH_INSTANTIATE_WIRE(CapabilitiesReply)
