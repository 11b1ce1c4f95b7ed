// llorch debug: what the stack sees inside.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/pager.h"
#include "cli/terminal_text.h"
#include "wire/json.h"
#include "wire/placement_snapshot.h"

namespace llorch::cli {
namespace {

void print_place(const wire::CandidatePlace& place, const wire::PlacementSnapshotJob& job) {
  std::string notes;
  if (!place.usable) notes += ", not usable";
  if (place.failed_before) notes += ", the last start failed here";
  if (place.tier == wire::PlacementTier::kFallback) notes += ", only if nothing better";
  if (place.tier == wire::PlacementTier::kExcluded) notes += ", not for this job";
  if (place.reserved && place.reserved->model_digest != job.model_digest) notes += ", being cleared for an earlier job";
  print_text("    {} {}: {} free, {} without our workers, of {}{}\n", place.pool_id, place.device_mask,
             human_bytes(place.free_bytes), human_bytes(place.potential_bytes), human_bytes(place.total_bytes), notes);
  for (const wire::PlaceDevice& device : place.devices) {
    for (const wire::ResidentWorker& worker : device.workers) {
      print_text("      {} holds {}: {}{}{}{}\n", worker.worker_id, human_bytes(worker.bytes),
                 !worker.ready ? "not ready"
                 : worker.idle ? "idle"
                               : "busy",
                 worker.leaving ? ", leaving" : "", worker.kept ? ", kept until its load has paid off" : "",
                 worker.queued ? ", jobs wait for it" : "");
    }
  }
}

void print_job(const wire::PlacementSnapshotJob& job) {
  print_text("{} of {} ({}), {} on each of {} device{}\n", job.job_id, job.model_ref, job.rank.priority,
             human_bytes(job.memory_bytes), job.devices, job.devices == 1 ? "" : "s");
  print_text("  decision: {}{}{}\n", job.decision.outcome, job.decision.wait ? " " : "",
             job.decision.wait.value_or(""));
  for (const wire::CandidateWorker& worker : job.workers) {
    print_text("    {} of {}: {} of {} slots free{}\n", worker.worker_id, worker.pool_id, worker.slots_free,
               worker.slots_free + worker.slots_active, worker.in_doubt ? ", its connection broke" : "");
  }
  for (const wire::CandidatePlace& place : job.places) print_place(place, job);
}

}  // namespace

int debug_snapshot(const GlobalOptions& global) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto answer = (*api)->call("GET", "/v2/debug/snapshot", "");
  if (!answer) return report(answer.error(), global.json);
  if (global.json) return fmt::print("{}\n", *answer), kOk;
  const auto snapshot = wire::decode<wire::PlacementSnapshot>(*answer);
  if (!snapshot) return report(snapshot.error(), global.json);
  if (snapshot->jobs.empty()) return print_text("no job waits\n"), kOk;
  const Pager pager(true);
  print_text("placement by {}, eviction by {}, {} worker{} a device\n", snapshot->algorithm, snapshot->eviction_policy,
             snapshot->workers_per_gpu, snapshot->workers_per_gpu == 1 ? "" : "s");
  for (const wire::PlacementSnapshotJob& job : snapshot->jobs) print_job(job);
  const std::int64_t more = snapshot->jobs_total - static_cast<std::int64_t>(snapshot->jobs.size());
  if (more > 0) print_text("and {} more\n", more);
  return kOk;
}

}  // namespace llorch::cli
