#pragma once
// Which workers serve which jobs, the scheduling pass, and the review of a long queue.
#include <span>

#include "orchestratord/core/placement/staging_shelf.h"
#include "orchestratord/core/queue/job_groups.h"

namespace llorch::orchestratord::core {

// Which workers a group's jobs may run on, so that a replica set has one version (OC-CORE-1031).
struct ReplicaRule {
  const std::string* only = nullptr;  // jobs that run again: this version, while there is any chance of it
  std::vector<const Worker*> in_use;  // else, of each device class, the version of this one
  bool allows(const std::string& device_class, const std::string& version) const;
  bool allows(const Worker& worker) const { return allows(worker.info.device_class, worker.version); }
  // A start there would give such a worker, as far as anybody knows.
  bool allows(const pools::Device& device) const {
    return device.version ? allows(device.version_class, *device.version) : only == nullptr;
  }
  bool allows(const pools::Pool& pool, const std::string& mask) const;
};

class Replicas : Handler {
 public:
  using Handler::Handler;

  // Every admitted job of the model fits such a worker.
  bool useful(const Worker& worker, const wire::ModelFacts& facts) const;
  bool serves(const Worker& worker, const wire::ModelFacts& facts) const;
  bool keeps_replica_set(const JobGroup& l, const Worker& worker) const;
  bool has_serving_worker(const JobGroup& l) const;
  // `l` null: of jobs that run anywhere.
  ReplicaRule replica_rule(const Model& m, const JobGroup* l) const;
  // The first job that waits for a worker of the model and would take this one.
  std::optional<placement::Rank> first_waiting_for(const Worker& worker, const Model& m) const;
  void tell_other_version(const Worker& worker, const Model& m) const;

 private:
  bool version_is_around(const JobGroup& l) const;
};

// Has pools read models into memory whose jobs wait for a device.
class Staging : Handler {
 public:
  using Handler::Handler;

  // Jobs of the model wait for a device of this pool.
  void wait_for_memory(const wire::ModelFacts& model, const pools::Pool& pool);

 private:
  struct Shelf {
    std::string boot_id;
    placement::StagingShelf models;
  };
  std::map<base::PoolId, Shelf> shelves_;
};

class Scheduler : Handler {
 public:
  using Handler::Handler;

  // Decides until nothing more can be done now.
  void schedule();
  // What a decision about each group's first job looks at now, and that decision; none is carried out.
  void on(QueryPlacement& e);
  // The decision about a job that nobody has submitted, and what it would wait for. REQUIRES: its group has no waiting job.
  struct Preview {
    wire::PlacementDecision decision;
    std::optional<placement::Wait> wait;
  };
  Preview preview(const Job& job);
  placement::Resident resident(const Worker& worker, const std::string& gpu_id, std::uint32_t number);

 private:
  struct PassScratch;
  bool only_slots_matter() const;
  void schedule_class(Priority priority, PassScratch& scratch);
  void place(GroupIndex group_index, Arrival arrival, Priority priority, PassScratch& scratch);
  placement::PlacementInput input_for(const JobGroup& l, const Job& job, Priority priority, PassScratch& scratch);
  placement::Devices devices_for(const JobGroup& l, PassScratch& scratch);
  using Home = std::optional<std::pair<base::PoolId, base::WorkerId>>;  // of a session
  void collect_workers(const JobGroup& l, const Home& affine, PassScratch& scratch, placement::PlacementInput& input);
  std::span<const placement::DeviceChoice> collect_devices(PassScratch& scratch);
  std::span<const placement::DeviceChoice> collect_masks(const JobGroup& l, PassScratch& scratch);
  bool accepts_a_pool(const JobGroup& l) const;
  bool is_in_the_way(const JobGroup& l, const Worker& w) const;
  placement::DeviceChoice part_of(const JobGroup& l, const pools::Place& place, const pools::Device& device,
                                  PassScratch& scratch);
  std::int64_t least_free(const Worker& worker) const;
  void record(const JobGroup& l, const Job& job, Priority priority, PassScratch& scratch);
  wire::PlacementSnapshot empty_snapshot() const;  // the policies alone
  wire::PlacementSnapshotJob snapshot_of(const JobGroup& l, const Job& job, Priority priority, PassScratch& scratch);
  static wire::PlacementDecision snapshot_of(const placement::Decision& decision, const PassScratch& scratch);
  wire::CandidatePlace snapshot_of(const placement::DeviceChoice& choice, const placement::Devices& devices,
                                   const PassScratch& scratch) const;
  wire::ResidentWorker snapshot_of(const placement::Resident& resident, const Worker& worker) const;
  void apply(const placement::Decision& decision, Job& job, PassScratch& scratch);
  void stage(const Job& job, const placement::Decision& decision, const PassScratch& scratch);
  void log_decision(const Job& job, const placement::Decision& decision, const placement::DecisionLog& how,
                    const PassScratch& scratch);
};

class QueueReview : Handler {
 public:
  using Handler::Handler;

  void on(QueueReviewed& e);
  void watch_queue();
  void review_queue();
  static std::string advice_text(const queue::Suggestion& advice);

 private:
  queue::Snapshot queue_snapshot() const;
  queue::DeviceView device_view(const base::PoolId& pool_id, const pools::Device& device) const;

  bool watching_queue_ = false, reviewing_queue_ = false;  // timer armed; review on its way
};

}  // namespace llorch::orchestratord::core
