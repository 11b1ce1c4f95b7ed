#include "wire/placement_snapshot.h"

#include "wire/field.h"

namespace llorch::wire {

template <>
struct EnumNames<PlacementTier> {
  static constexpr auto names = std::array{std::pair{PlacementTier::kPreferred, std::string_view("preferred")},
                                           std::pair{PlacementTier::kFallback, std::string_view("fallback")},
                                           std::pair{PlacementTier::kExcluded, std::string_view("excluded")}};
};
template <>
struct Table<DispatchRank> {
  using S = DispatchRank;
  static Fields fields() { return {required("priority", &S::priority), required("arrival", &S::arrival)}; }
};
template <>
struct Table<CandidateWorker> {
  using S = CandidateWorker;
  static Fields fields() {
    return {required("pool_id", &S::pool_id),
            required("worker_id", &S::worker_id),
            required("tier", &S::tier),
            required("slots_free", &S::slots_free),
            required("slots_active", &S::slots_active),
            required("in_doubt", &S::in_doubt),
            required("device_free_bytes", &S::device_free_bytes),
            optional("first_token_ms", &S::first_token_ms),
            optional("us_per_token", &S::us_per_token)};
  }
};
template <>
struct Table<ResidentWorker> {
  using S = ResidentWorker;
  static Fields fields() {
    return {required("worker_id", &S::worker_id),
            required("bytes", &S::bytes),
            required("last_used_ms", &S::last_used_ms),
            required("ready", &S::ready),
            required("leaving", &S::leaving),
            required("idle", &S::idle),
            required("kept", &S::kept),
            required("elsewhere", &S::elsewhere),
            required("useful", &S::useful),
            required("use_frequency", &S::use_frequency),
            optional("model_digest", &S::model_digest),
            optional("queued", &S::queued)};
  }
};
template <>
struct Table<DeviceReservation> {
  using S = DeviceReservation;
  static Fields fields() { return {required("model_digest", &S::model_digest), required("rank", &S::rank)}; }
};
template <>
struct Table<PlaceDevice> {
  using S = PlaceDevice;
  static Fields fields() {
    return {required("ranks", &S::ranks), required("free_bytes", &S::free_bytes),
            required("potential_bytes", &S::potential_bytes), required("total_bytes", &S::total_bytes),
            required("workers", &S::workers)};
  }
};
template <>
struct Table<CandidatePlace> {
  using S = CandidatePlace;
  static Fields fields() {
    return {required("pool_id", &S::pool_id),
            required("device_mask", &S::device_mask),
            required("tier", &S::tier),
            required("usable", &S::usable),
            required("failed_before", &S::failed_before),
            required("free_bytes", &S::free_bytes),
            required("potential_bytes", &S::potential_bytes),
            required("total_bytes", &S::total_bytes),
            optional("reserved", &S::reserved),
            required("devices", &S::devices)};
  }
};
template <>
struct Table<PlacementDecision> {
  using S = PlacementDecision;
  static Fields fields() {
    return {required("outcome", &S::outcome), optional("pool_id", &S::pool_id),
            optional("device_mask", &S::device_mask), required("worker_ids", &S::worker_ids),
            optional("wait", &S::wait)};
  }
};
template <>
struct Table<JobPreview> {
  using S = JobPreview;
  static Fields fields() {
    return {required("feasible", &S::feasible, "Whether it would be admitted now."),
            optional("reason", &S::reason, "The code of its refusal, or of what it would wait for."),
            optional("message", &S::message),
            optional("retry_after_ms", &S::retry_after_ms),
            required("model_ref", &S::model_ref, "What the model resolved to."),
            required("tokens_in", &S::tokens_in),
            required("max_tokens", &S::max_tokens),
            optional("queue_position", &S::queue_position, "0 = next to be dispatched."),
            optional("predicted_start_ms", &S::predicted_start_ms, "Omitted: nothing of the model was measured yet."),
            optional("decision", &S::decision, "Which worker would take it, or what would be done to have one.")};
  }
};
template <>
struct Table<PlacementSnapshotJob> {
  using S = PlacementSnapshotJob;
  static Fields fields() {
    return {required("job_id", &S::job_id),
            required("model_ref", &S::model_ref),
            required("model_digest", &S::model_digest),
            required("rank", &S::rank),
            required("memory_bytes", &S::memory_bytes),
            required("devices", &S::devices),
            required("tokens_expected", &S::tokens_expected),
            required("quota_reached", &S::quota_reached),
            required("start_in_flight", &S::start_in_flight),
            required("start_backing_off", &S::start_backing_off),
            required("impatient", &S::impatient),
            required("may_add_worker", &S::may_add_worker),
            required("has_worker", &S::has_worker),
            required("other_version", &S::other_version),
            required("too_few_devices", &S::too_few_devices),
            required("workers_excluded", &S::workers_excluded),
            optional("last_worker_id", &S::last_worker_id),
            optional("affine_worker_id", &S::affine_worker_id),
            required("workers", &S::workers),
            required("places", &S::places),
            required("decision", &S::decision)};
  }
};
template <>
struct Table<PlacementSnapshot> {
  using S = PlacementSnapshot;
  static Fields fields() {
    return {required("schema_version", &S::schema_version),
            required("taken_unix_ms", &S::taken_unix_ms),
            required("algorithm", &S::algorithm),
            required("eviction_policy", &S::eviction_policy),
            required("workers_per_gpu", &S::workers_per_gpu),
            required("pools_expected", &S::pools_expected),
            required("jobs_total", &S::jobs_total),
            required("jobs", &S::jobs)};
  }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(PlacementSnapshot)
LLORCH_INSTANTIATE_WIRE(JobPreview)
LLORCH_INSTANTIATE_ENUM(PlacementTier)
