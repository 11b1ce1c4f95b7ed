#include "wire/pool_control.h"

#include "wire/field.h"
#include "wire/model_facts_fields.h"

namespace llorch::wire {

namespace {
constexpr Bounds kDeadline{0, 1e9};
}

template <>
struct EnumNames<PoolOperationKind> {
  static constexpr auto names = std::array{std::pair{PoolOperationKind::kDrain, std::string_view("drain")},
                                           std::pair{PoolOperationKind::kReload, std::string_view("reload")}};
};
template <>
struct EnumNames<PoolOperationState> {
  static constexpr auto names = std::array{std::pair{PoolOperationState::kRunning, std::string_view("running")},
                                           std::pair{PoolOperationState::kDone, std::string_view("done")},
                                           std::pair{PoolOperationState::kRolledBack, std::string_view("rolled_back")},
                                           std::pair{PoolOperationState::kFailed, std::string_view("failed")}};
};

template <>
struct Table<PoolCredentialReply> {
  using S = PoolCredentialReply;
  static Fields fields() {
    return {required("pool_id", &S::pool_id),
            required("credential", &S::credential,
                     "What the pool keeps in pool-managerd.credential_file. It is a secret, and told this once.")};
  }
};
template <>
struct Table<DrainRequest> {
  static Fields fields() {
    return {required("deadline_ms", &DrainRequest::deadline_ms,
                     "Running jobs may go on for this long; then they go back to the queue. 0: at once.", kDeadline)};
  }
};
template <>
struct Table<ReloadRequest> {
  using S = ReloadRequest;
  static Fields fields() {
    return {required("new_model_ref", &S::new_model_ref, "Alias or file: reference.", {1, 4096}),
            optional("deadline_ms", &S::deadline_ms,
                     "Running jobs may go on for this long; then they go back to the queue.", kDeadline)};
  }
};
template <>
struct Table<PurgeRequest> {
  using S = PurgeRequest;
  static Fields fields() {
    return {optional("purge_engine", &S::purge_engine, "Not served: engines belong to the installation."),
            optional("purge_models", &S::purge_models, "Aliases, references or digests; none: every model."),
            optional("drain_first", &S::drain_first,
                     "Running jobs may finish. Without it and without force a busy worker is a conflict."),
            optional("delete_cache_dirs", &S::delete_cache_dirs, "Not served: files on disk are left alone."),
            optional("force", &S::force, "Running jobs go back to the queue at once.")};
  }
};
template <>
struct Table<PoolControlReply> {
  using S = PoolControlReply;
  static Fields fields() {
    return {required("pool_id", &S::pool_id), required("status", &S::status),
            required("workers", &S::workers, "Workers that are stopped.")};
  }
};
template <>
struct Table<PoolOperation> {
  using S = PoolOperation;
  static Fields fields() {
    return {required("kind", &S::kind), required("state", &S::state), optional("step", &S::step),
            optional("model_ref", &S::model_ref), optional("deadline_ms", &S::deadline_ms, "From now.")};
  }
};
template <>
struct Table<DesiredReload::Place> {
  using S = DesiredReload::Place;
  static Fields fields() { return {required("gpu_id", &S::gpu_id), required("model", &S::model)}; }
};
template <>
struct Table<DesiredReload> {
  using S = DesiredReload;
  static Fields fields() {
    return {required("state", &S::state), required("model", &S::model), required("before", &S::before),
            optional("error", &S::error)};
  }
};
template <>
struct Table<PoolDesiredState> {
  using S = PoolDesiredState;
  static Fields fields() { return {optional("reload", &S::reload), optional("purged", &S::purged)}; }
};
template <>
struct Table<PoolHealthMetrics> {
  using S = PoolHealthMetrics;
  static Fields fields() {
    return {
        required("active_leases", &S::active_leases),       required("workers_total", &S::workers_total),
        required("workers_ready", &S::workers_ready),       required("workers_starting", &S::workers_starting),
        required("slots_total", &S::slots_total),           required("slots_free", &S::slots_free),
        required("vram_total_bytes", &S::vram_total_bytes), required("vram_available_bytes", &S::vram_available_bytes),
        required("worker_failures", &S::worker_failures)};
  }
};
template <>
struct Table<PoolHealthReport> {
  using S = PoolHealthReport;
  static Fields fields() {
    return {required("pool_id", &S::pool_id),
            required("live", &S::live),
            required("ready", &S::ready),
            required("draining", &S::draining),
            required("metrics", &S::metrics),
            optional("last_heartbeat_ms", &S::last_heartbeat_ms, "Milliseconds ago."),
            optional("version", &S::version),
            optional("operation", &S::operation),
            optional("last_error", &S::last_error)};
  }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(PoolCredentialReply)
LLORCH_INSTANTIATE_WIRE(DrainRequest)
LLORCH_INSTANTIATE_WIRE(ReloadRequest)
LLORCH_INSTANTIATE_WIRE(PurgeRequest)
LLORCH_INSTANTIATE_WIRE(PoolControlReply)
LLORCH_INSTANTIATE_WIRE(PoolHealthReport)
LLORCH_INSTANTIATE_WIRE(PoolDesiredState)
LLORCH_INSTANTIATE_ENUM(PoolOperationKind)
LLORCH_INSTANTIATE_ENUM(PoolOperationState)
