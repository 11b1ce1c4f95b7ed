#pragma once
// The models that jobs ask for, and the groups in which their jobs wait.
#include <deque>
#include <span>

#include "orchestratord/core/placement/estimate.h"
#include "orchestratord/core/placement/eviction.h"
#include "orchestratord/core/placement/placement.h"
#include "orchestratord/core/placement/start_control.h"
#include "orchestratord/core/queue/job_queue.h"
#include "orchestratord/core/sessions/ledger.h"

namespace llorch::orchestratord::core {

// What runs of a model on a device took.
struct Performance {
  placement::Average first_token_ms, us_per_token;
};

class JobGroups;
struct Model {
  ModelIndex index;
  // Of the newest accepted job; `model_ref`, `devices` and `memory_bytes` of whoever named it first, or of a reload.
  wire::ModelFacts facts;
  placement::Average run_ms, start_ms, tokens_out;
  std::map<std::pair<base::PoolId, std::string>, Performance> performance;  // by device
  placement::StartControl starts;
  placement::UseFrequency frequency;
  std::optional<std::pair<base::PoolId, base::WorkerId>> last_worker;  // round-robin
  // What runs on the worker's device took; absent: none has ended there.
  std::optional<placement::Speed> speed_on(const pools::Worker& worker) const;
  WrittenBy<std::vector<GroupIndex>, JobGroups> groups;  // in use
};

class Models {
 public:
  Model& at(ModelIndex index) { return models_[index.value]; }
  const Model& at(ModelIndex index) const { return models_[index.value]; }
  // Null: no job ever asked for it.
  Model* find(const std::string& digest);
  const Model* find(const std::string& digest) const { return const_cast<Models*>(this)->find(digest); }
  // Of a model that is known nothing changes.
  ModelIndex intern(const wire::ModelFacts& facts);
  // The facts of a known one give way to these.
  ModelIndex renew(const wire::ModelFacts& facts);

 private:
  std::deque<Model> models_;  // by ModelIndex
  std::map<std::string, ModelIndex> index_of_;
};

// Jobs of one model that may run at the same places: what one of them waits for, the next ones wait for too.
struct GroupKey {
  ModelIndex model;
  wire::Placement placement;
  std::string tenant_id;  // if it may run only so many at a time; else ""
  std::string version;    // of jobs that run again: the worker version whose bytes a client holds; else ""
  // What one reference to the model's bytes says and another may say otherwise.
  std::string model_ref;
  std::int64_t devices = 1, memory_bytes = 0;
  auto operator<=>(const GroupKey&) const = default;
};
struct JobGroup : GroupKey {
  wire::ModelFacts facts;                   // of its newest job: where they are placed, by these
  bool anywhere = true;                     // `placement` excludes and prefers nothing
  WrittenBy<std::int64_t, JobGroups> jobs;  // live ones
  placement::StartRound start_round;
  WrittenBy<std::optional<placement::Wait>, JobGroups> wait;  // of its first waiting job, from the last scheduling pass
  std::optional<std::pair<Arrival, placement::WaitCode>> logged_wait;  // said once, not at every pass
  std::optional<std::int64_t> memory_wait_since_ms;
  std::optional<queue::Suggestion> advice;  // from the last review of the queue
  bool may_add_worker = false;              // said by it, for the next scheduling pass
};

placement::Tier tier(const JobGroup& group, const base::PoolId& pool, const std::string& gpu_id);
bool accepts(const JobGroup& group, const Worker& worker);
// The pools that the group of a job avoids and the job itself does not: their workers have refused it.
std::span<const std::string> refused_by(const JobGroup& group, const jobs::JobSpec& spec);

// Keeps the queue, its groups, and the reason for which each group waits.
class JobGroups : Owner {
 public:
  JobGroups(Env& env, const Ledger& ledger, Models& models, pools::PoolRegistry& registry)
      : Owner(env), ledger_(ledger), models_(models), registry_(registry) {}

  JobGroup& at(GroupIndex index) { return groups_[index.value]; }
  const JobGroup& at(GroupIndex index) const { return groups_[index.value]; }
  GroupIndex intern(ModelIndex model, const jobs::JobSpec& spec, const std::string& version);
  void enter(Job& job, GroupIndex index);
  void leave(const Job& job);
  // From its group to this one, with its place in the queue.
  void regroup(Job& job, GroupIndex index);
  // The same, where its tenant has, or has no more, a number of jobs that it may run at a time.
  void regroup_by_quota(Job& job);
  // Into the queue, with its place by arrival.
  void put_back(const Job& job, std::int64_t ready_at_ms, bool displaceable);
  void not_entered(GroupIndex index);  // nobody came in after intern()
  // The same, at once. REQUIRES as pass_over().
  void drop_if_empty(GroupIndex index);

  // What the first job of a group waits for, until the next pass over it.
  void set_wait(GroupIndex index, placement::Wait wait);
  // A pass over these groups begins, or over all that wait. Returns which.
  std::vector<GroupIndex> forget_waits(bool every_group, std::vector<GroupIndex> named);
  bool all_wait_for_slots() const;
  // For the next pass only.
  void allow_worker(GroupIndex index);
  void drop_advice();
  // REQUIRES: nothing refers to a group without jobs but the starts made for it.
  void pass_over();

  bool may_run(const JobGroup& l) const { return ledger_.may_run(l.tenant_id); }
  // Jobs of its model that go first, wherever they may run: an estimate, so groups that never meet are not told apart.
  std::int64_t ahead_of(const Job& job) const;
  std::int64_t ahead_in_group(const Job& job) const;

  queue::JobQueue& queue() { return queue_; }
  const queue::JobQueue& queue() const { return queue_; }
  void verify(const Jobs& jobs) const;

 private:
  const Ledger& ledger_;
  Models& models_;
  pools::PoolRegistry& registry_;
  queue::JobQueue queue_{config_.queue, config_.tenants};
  std::deque<JobGroup> groups_;  // by GroupIndex
  std::map<GroupKey, GroupIndex> index_of_;
  std::vector<GroupIndex> free_, emptied_;
  std::vector<GroupIndex> waiting_;  // with a wait, from the last pass
  std::vector<GroupIndex> allowed_;  // with may_add_worker
};

// An owner that works on the tables of jobs and pools; of the others it asks what is theirs.
class Handler : protected Owner {
 public:
  explicit Handler(State& state);

 protected:
  JobGroup& group(GroupIndex index) const { return groups_.at(index); }
  Model& model(ModelIndex index) const { return models_.at(index); }

  State& s_;
  Jobs& jobs_;
  Commits& commits_;
  Ledger& ledger_;
  Models& models_;
  JobGroups& groups_;
  queue::JobQueue& queue_;
  pools::PoolRegistry& registry_;
};

}  // namespace llorch::orchestratord::core
