// What placement looks at, with ids instead of numbers, for readers outside.
#include <utility>

#include "orchestratord/core/placement/pass_scratch.h"
#include "wire/json.h"

namespace llorch::orchestratord::core {
namespace {

wire::PlacementTier tier_name(placement::Tier tier) {
  switch (tier) {
    case placement::Tier::kPreferred: return wire::PlacementTier::kPreferred;
    case placement::Tier::kFallback: return wire::PlacementTier::kFallback;
    case placement::Tier::kExcluded: break;
  }
  return wire::PlacementTier::kExcluded;
}

wire::DispatchRank rank_of(const placement::Rank& rank) {
  return {.priority = std::string(wire::enum_name(rank.priority)),
          .arrival = static_cast<std::int64_t>(rank.arrival.value)};
}

wire::CandidateWorker snapshot_of(const placement::WorkerChoice& choice, const Worker& worker) {
  wire::CandidateWorker out{.pool_id = worker.pool_id.value,
                            .worker_id = worker.id.value,
                            .tier = tier_name(choice.tier),
                            .slots_free = choice.slots_free,
                            .slots_active = choice.active,
                            .in_doubt = choice.doubted,
                            .device_free_bytes = choice.device_free_bytes};
  if (choice.speed) {
    out.first_token_ms = choice.speed->first_token_ms;
    out.us_per_token = choice.speed->us_per_token;
  }
  return out;
}

}  // namespace

wire::ResidentWorker Scheduler::snapshot_of(const placement::Resident& resident, const Worker& worker) const {
  wire::ResidentWorker out{.worker_id = worker.id.value,
                           .bytes = resident.bytes,
                           .last_used_ms = resident.last_used_ms,
                           .ready = resident.ready,
                           .leaving = resident.leaving,
                           .idle = resident.idle,
                           .kept = resident.kept,
                           .elsewhere = resident.elsewhere,
                           .useful = resident.useful,
                           .use_frequency = resident.frequency};
  if (resident.model) out.model_digest = model(*resident.model).facts.digest;
  if (resident.queued) out.queued = rank_of(*resident.queued);
  return out;
}

wire::CandidatePlace Scheduler::snapshot_of(const placement::DeviceChoice& choice, const placement::Devices& devices,
                                            const PassScratch& scratch) const {
  const PassScratch::Place& place = scratch.places[choice.device];
  wire::CandidatePlace out{.pool_id = place.pool->id.value,
                           .device_mask = *place.gpu_id,
                           .tier = tier_name(placement::tier_of(choice, devices)),
                           .usable = choice.usable,
                           .failed_before = std::ranges::find(devices.failed, choice.device) != devices.failed.end(),
                           .free_bytes = choice.free_bytes,
                           .potential_bytes = choice.potential_bytes,
                           .total_bytes = choice.total_bytes};
  if (choice.reserved) {
    out.reserved = wire::DeviceReservation{.model_digest = model(choice.reserved->model).facts.digest,
                                           .rank = rank_of(choice.reserved->rank)};
  }
  for (const placement::DeviceChoice& part : parts_of(choice)) {
    wire::PlaceDevice& device = out.devices.emplace_back();
    device = {.ranks = part.ranks,
              .free_bytes = part.free_bytes,
              .potential_bytes = part.potential_bytes,
              .total_bytes = part.total_bytes};
    for (const placement::Resident& resident : part.residents) {
      device.workers.push_back(snapshot_of(resident, *scratch.residents[resident.worker]));
    }
  }
  return out;
}

wire::PlacementSnapshotJob Scheduler::snapshot_of(const JobGroup& l, const Job& job, Priority priority,
                                                  PassScratch& scratch) {
  const wire::ModelFacts& facts = l.facts;
  const placement::PlacementInput input = input_for(l, job, priority, scratch);
  const placement::Devices devices = devices_for(l, scratch);
  wire::PlacementSnapshotJob out{.job_id = job.spec.job_id.value,
                                 .model_ref = facts.model_ref,
                                 .model_digest = facts.digest,
                                 .rank = rank_of(input.rank),
                                 .memory_bytes = input.memory_bytes,
                                 .devices = facts.devices,
                                 .tokens_expected = input.tokens_expected,
                                 .quota_reached = input.quota_reached,
                                 .start_in_flight = input.starting,
                                 .start_backing_off = input.start_backing_off,
                                 .impatient = input.impatient,
                                 .may_add_worker = input.may_add_worker,
                                 .has_worker = input.has_worker,
                                 .other_version = input.other_version,
                                 .too_few_devices = devices.too_few,
                                 .workers_excluded = input.workers_excluded};
  if (input.last_worker) out.last_worker_id = scratch.workers[*input.last_worker]->id.value;
  if (input.affine_worker) out.affine_worker_id = scratch.workers[*input.affine_worker]->id.value;
  for (const placement::WorkerChoice& choice : input.workers) {
    out.workers.push_back(core::snapshot_of(choice, *scratch.workers[choice.worker]));
  }
  for (const placement::DeviceChoice& choice : devices.all) out.places.push_back(snapshot_of(choice, devices, scratch));

  placement::DecisionLog how;
  out.decision = snapshot_of(placement::decide(
                                 input, [&] { return devices; }, how),
                             scratch);
  return out;
}

wire::PlacementDecision Scheduler::snapshot_of(const placement::Decision& decision, const PassScratch& scratch) {
  wire::PlacementDecision out{.outcome = std::string(placement::outcome(decision))};
  const auto at = [&](std::uint32_t device) {
    out.pool_id = scratch.places[device].pool->id.value;
    out.device_mask = *scratch.places[device].gpu_id;
  };
  const auto leave = [&](const auto& departure) {
    at(departure.device);
    for (const std::uint32_t w : departure.workers) out.worker_ids.push_back(scratch.residents[w]->id.value);
  };
  if (const auto* use = std::get_if<placement::UseWorker>(&decision)) {
    out.pool_id = scratch.workers[use->worker]->pool_id.value;
    out.worker_ids.push_back(scratch.workers[use->worker]->id.value);
  }
  if (const auto* start = std::get_if<placement::StartOn>(&decision)) at(start->device);
  if (const auto* evict = std::get_if<placement::Evict>(&decision)) leave(*evict);
  if (const auto* reserve = std::get_if<placement::Reserve>(&decision)) leave(*reserve);
  if (const auto* wait = std::get_if<placement::Wait>(&decision)) out.wait = placement::code(wait->code);
  return out;
}

Scheduler::Preview Scheduler::preview(const Job& job) {
  PassScratch scratch;
  const JobGroup& l = group(job.group);
  const placement::PlacementInput input = input_for(l, job, job.spec.priority, scratch);
  placement::DecisionLog how;
  const placement::Decision decision = placement::decide(
      input, [&] { return devices_for(l, scratch); }, how);
  const auto* wait = std::get_if<placement::Wait>(&decision);
  return {snapshot_of(decision, scratch), wait ? std::optional(*wait) : std::nullopt};
}

wire::PlacementSnapshot Scheduler::empty_snapshot() const {
  return {.taken_unix_ms = now_.unix_ms,
          .algorithm = std::string(wire::enum_name(config_.scheduling.algorithm)),
          .eviction_policy = std::string(wire::enum_name(config_.eviction.worker_policy)),
          .workers_per_gpu = config_.workers_per_gpu,
          .pools_expected = s_.pools.pools_expected()};
}

void Scheduler::record(const JobGroup& l, const Job& job, Priority priority, PassScratch& scratch) {
  wire::PlacementSnapshot out = empty_snapshot();
  out.jobs_total = 1;
  out.jobs.push_back(snapshot_of(l, job, priority, scratch));
  config_.record(out);
}

void Scheduler::on(QueryPlacement& e) {
  wire::PlacementSnapshot out = empty_snapshot();
  PassScratch scratch;
  for (const Priority priority : {Priority::kInteractive, Priority::kBatch}) {
    std::optional<Arrival> after;
    while (const auto head = queue_.next_head(priority, after)) {
      after = head->arrival;
      if (++out.jobs_total > wire::kSnapshotJobsMax) continue;
      out.jobs.push_back(snapshot_of(group(head->group), jobs_.at(head->arrival), priority, scratch));
    }
  }
  emit(AnswerQueryPlacement{e.request, std::move(out)});
}

}  // namespace llorch::orchestratord::core
