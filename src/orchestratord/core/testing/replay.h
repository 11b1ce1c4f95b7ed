#pragma once
// Decides again from what a snapshot printed.
#include "orchestratord/core/placement/placement.h"
#include "wire/json.h"
#include "wire/placement_snapshot.h"

namespace llorch::orchestratord::core {

// `snapshot.jobs` is not looked at: `job` is one of its jobs, or one that was recorded under the same policies.
class Replay {
 public:
  Replay(const wire::PlacementSnapshot& snapshot, const wire::PlacementSnapshotJob& job) : job_(job) {
    input_.rank = rank(job.rank);
    input_.model = model(job.model_digest);
    input_.memory_bytes = job.memory_bytes;
    input_.algorithm = *wire::enum_from_name<config::PlacementAlgorithm>(snapshot.algorithm);
    input_.tokens_expected = job.tokens_expected;
    input_.eviction = *wire::enum_from_name<config::EvictionPolicy>(snapshot.eviction_policy);
    input_.workers_excluded = job.workers_excluded;
    input_.quota_reached = job.quota_reached;
    input_.other_version = job.other_version;
    input_.has_worker = job.has_worker;
    input_.starting = job.start_in_flight;
    input_.start_backing_off = job.start_backing_off;
    input_.impatient = job.impatient;
    input_.may_add_worker = job.may_add_worker;
    input_.pools_expected = snapshot.pools_expected;
    input_.workers_per_device = snapshot.workers_per_gpu;
    for (const wire::CandidateWorker& w : job.workers) add(w);
    for (const wire::CandidatePlace& p : job.places) add(p);
  }

  wire::PlacementDecision decide() {
    input_.workers = workers_;
    placement::DecisionLog how;
    const placement::Decision d = placement::decide(
        input_,
        [&] {
          return placement::Devices{choices_, tiers_, failed_, job_.too_few_devices};
        },
        how);
    wire::PlacementDecision out{.outcome = std::string(placement::outcome(d))};
    const auto at = [&](std::uint32_t place) {
      out.pool_id = job_.places[place].pool_id;
      out.device_mask = job_.places[place].device_mask;
    };
    if (const auto* use = std::get_if<placement::UseWorker>(&d)) {
      out.pool_id = job_.workers[use->worker].pool_id;
      out.worker_ids = {job_.workers[use->worker].worker_id};
    }
    if (const auto* start = std::get_if<placement::StartOn>(&d)) at(start->device);
    if (const auto* evict = std::get_if<placement::Evict>(&d)) at(evict->device), name(evict->workers, out);
    if (const auto* reserve = std::get_if<placement::Reserve>(&d)) at(reserve->device), name(reserve->workers, out);
    if (const auto* wait = std::get_if<placement::Wait>(&d)) out.wait = placement::code(wait->code);
    return out;
  }

 private:
  static placement::Tier tier(wire::PlacementTier tier) { return static_cast<placement::Tier>(tier); }
  static placement::Rank rank(const wire::DispatchRank& r) {
    return {*wire::enum_from_name<wire::Priority>(r.priority), {static_cast<std::uint64_t>(r.arrival)}};
  }
  jobs::ModelIndex model(const std::string& digest) {
    return {models_.try_emplace(digest, models_.size()).first->second};
  }

  void add(const wire::CandidateWorker& w) {
    const auto number = static_cast<std::uint32_t>(workers_.size());
    if (w.worker_id == job_.last_worker_id) input_.last_worker = number;
    if (w.worker_id == job_.affine_worker_id) input_.affine_worker = number;
    workers_.push_back({.worker = number,
                        .tier = tier(w.tier),
                        .slots_free = w.slots_free,
                        .active = w.slots_active,
                        .doubted = w.in_doubt,
                        .device_free_bytes = w.device_free_bytes});
    if (w.first_token_ms) workers_.back().speed = placement::Speed{*w.first_token_ms, *w.us_per_token};
  }

  void add(const wire::CandidatePlace& p) {
    const auto number = static_cast<std::uint32_t>(choices_.size());
    tiers_.push_back(tier(p.tier));
    if (p.failed_before) failed_.push_back(number);
    placement::DeviceChoice choice{.device = number,
                                   .usable = p.usable,
                                   .free_bytes = p.free_bytes,
                                   .potential_bytes = p.potential_bytes,
                                   .total_bytes = p.total_bytes};
    if (p.reserved) choice.reserved = placement::Reservation{model(p.reserved->model_digest), rank(p.reserved->rank)};
    for (const wire::PlaceDevice& d : p.devices) {
      placement::DeviceChoice part{.free_bytes = d.free_bytes,
                                   .potential_bytes = d.potential_bytes,
                                   .total_bytes = d.total_bytes,
                                   .reserved = {},
                                   .ranks = d.ranks};
      for (const wire::ResidentWorker& w : d.workers) part.residents.push_back(resident(w, p.pool_id));
      if (job_.devices > 1) {
        choice.parts.push_back(std::move(part));
      } else {
        choice.residents = std::move(part.residents);
      }
    }
    choices_.push_back(std::move(choice));
  }

  // A worker on several devices of a place is one; elsewhere each device counts its workers for itself.
  placement::Resident resident(const wire::ResidentWorker& w, const std::string& pool_id) {
    auto number = static_cast<std::uint32_t>(residents_.size());
    const std::string id = pool_id + "/" + w.worker_id;
    if (job_.devices > 1) {
      number = static_cast<std::uint32_t>(std::ranges::find(residents_, id) - residents_.begin());
    }
    if (number == residents_.size()) residents_.push_back(id);
    placement::Resident out{.worker = number,
                            .bytes = w.bytes,
                            .last_used_ms = w.last_used_ms,
                            .ready = w.ready,
                            .leaving = w.leaving,
                            .idle = w.idle,
                            .kept = w.kept,
                            .frequency = w.use_frequency,
                            .elsewhere = w.elsewhere,
                            .useful = w.useful};
    if (w.model_digest) out.model = model(*w.model_digest);
    if (w.queued) out.queued = rank(*w.queued);
    return out;
  }

  void name(const std::vector<std::uint32_t>& workers, wire::PlacementDecision& out) const {
    for (const std::uint32_t w : workers) out.worker_ids.push_back(residents_[w].substr(residents_[w].find('/') + 1));
  }

  const wire::PlacementSnapshotJob& job_;
  placement::PlacementInput input_;
  std::map<std::string, std::uint64_t> models_;
  std::vector<placement::WorkerChoice> workers_;
  std::vector<placement::DeviceChoice> choices_;
  std::vector<placement::Tier> tiers_;
  std::vector<std::uint32_t> failed_;
  std::vector<std::string> residents_;
};

}  // namespace llorch::orchestratord::core
