#pragma once
// The workers on their way: starts, stops, and devices that are cleared for somebody. And the pools that report on them.
#include <limits>
#include <set>

#include "base/log_limiter.h"
#include "orchestratord/core/queue/job_groups.h"

namespace llorch::orchestratord::core {

struct ReplicaRule;

class Workers : Handler {
 public:
  using Handler::Handler;

  void on(WorkerReady& e);
  void on(WorkerFailed& e);
  void on(StartWorkerAnswered& e);
  // What a report of its pool says of it.
  void worker_adopted(const base::WorkerId& id);
  void worker_ready(const base::WorkerId& id);
  void worker_gone(const pools::GoneWorker& gone, std::optional<base::Error> error);
  void start_timed_out(const base::WorkerId& id);

  struct StartOrder {
    ModelIndex model;
    std::optional<GroupIndex> group;       // whose first job asks for it; none: an operator does
    base::CorrelationId correlation_id{};  // of that job
  };
  base::WorkerId start_worker(const StartOrder& order, const base::PoolId& pool_id, const std::string& gpu_id);
  void stop_worker(Worker& worker, std::string_view why);
  // Its memory is for the first job of that group; and the room there.
  void reserve(Worker& worker, GroupIndex group_index);
  void reserve(const base::PoolId& pool, const std::string& mask, GroupIndex group_index);
  std::optional<placement::Reservation> reservation(const base::PoolId& pool, const std::string& gpu_id) const;
  // Whether a pool beside `failed` that its round does not rule out could run the group's jobs: now or when it is back; or now, where
  // starts of its model are not put off.
  enum class When : std::uint8_t { kEver, kNow };
  bool has_other_pool(const JobGroup& l, const ReplicaRule& rule, const std::optional<base::PoolId>& failed, When when);
  // It leaves when it is idle.
  void retire(Worker& worker);
  // Whether a pass may stop one, or a device is being cleared.
  bool holds_any() const { return !reservations_.empty() || !reserved_workers_.empty() || !retiring_.empty(); }

  // At the end of a pass.
  void give_up_reservations();
  void stop_reserved();
  void stop_retiring();
  void unload_idle();

  void verify() const;

 private:
  struct FailedStart {
    ModelIndex model;
    std::optional<GroupIndex> group;  // whose first job asked for it, as far as we know
    base::PoolId pool_id;
    std::string gpu_id;
  };
  static FailedStart failed_start(const Worker& worker, ModelIndex model_index);
  // Without a group of its own a start counts for everybody who might have used it.
  bool counts_for(const FailedStart& start, GroupIndex index);
  void start_failed(const FailedStart& start, base::Error error);
  void start_succeeded(ModelIndex model_index, const Worker& worker);
  void log_gone(const pools::GoneWorker& gone, const std::optional<base::Error>& error);
  void worker_crashed(Model& m, const base::Error& error);
  void postpone_start(ModelIndex model_index);
  void put_last(const FailedStart& start);
  static bool in_motion(const pools::Device& device, std::int64_t since_ms = std::numeric_limits<std::int64_t>::max());
  void serves_no_more(const Worker& worker);
  bool unused(const Worker& worker) const;
  std::int64_t trim(pools::Device& device);

  std::set<base::WorkerId> reserved_workers_;                                // with reserved_by
  std::map<std::pair<base::PoolId, std::string>, GroupIndex> reservations_;  // devices being cleared for a group
  std::set<base::WorkerId> retiring_;                                        // with retiring
  std::optional<TimerQueue::Handle> unload_timer_;
};

class Pools : Handler {
 public:
  using Handler::Handler;

  void on(PoolSeen& e);
  void on(PoolUnreachable& e);
  void check_pool(const base::PoolId& id);
  void arm_pool_timer(const base::PoolId& id, std::int64_t when_ms);
  void pool_unreachable(pools::Pool& pool);
  void ask_state(const std::string& endpoint);
  void expect_endpoint(const std::string& endpoint, std::int64_t until_ms);
  void check_endpoint(const std::string& endpoint);
  bool pools_expected() const;
  // It has left in good order, as a node does that is restarted.
  void pool_left(const base::PoolId& id);
  // Those that have left so and may be back: for as long as a silent one is kept.
  const std::set<base::PoolId>& awaited() const { return awaited_; }

  void verify() const;

 private:
  void pool_conflict(const PoolSeen& e, const pools::Changes& changes);
  void repeat_stops(pools::Pool& pool);
  void pool_lost_contact(pools::Pool& pool, std::string_view why);
  void ask_again(pools::Pool& pool);

  base::LogLimiter conflict_lines_{10, 10'000};  // who claims what another one has decides how often
  std::map<base::PoolId, TimerQueue::Handle> pool_timers_;
  std::set<base::PoolId> awaited_;                          // none is registered
  std::map<std::string, std::int64_t> expected_endpoints_;  // -> until when they may have what nobody has
};

}  // namespace llorch::orchestratord::core
