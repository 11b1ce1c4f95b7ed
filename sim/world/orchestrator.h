#pragma once
// One orchestratord: the real brain, the real streams, and around them the shell's duties (app/brain_host, api/tasks) over
// the simulated network and disk.
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/entropy.h"
#include "orchestratord/api/brain_port.h"
#include "orchestratord/brain/brain.h"
#include "orchestratord/streaming/stream_hub.h"
#include "pool_managerd/registration/registration.h"
#include "sim/world/exchange.h"
#include "sim/world/store.h"

namespace llorch::sim {

struct SubmitAnswer {
  bool accepted = false;
  std::optional<base::ErrorCode> refusal;
  std::int64_t retry_after_ms = 0;
};
struct CancelAnswer {
  bool known = false;
  bool settled = false;  // the job has ended, this way or another
};
struct ShowAnswer {
  bool known = false;
  contract::JobStatus status = contract::JobStatus::kQueued;
  std::int64_t tokens_out = 0;
};

struct SessionAnswer {
  bool there = false;
};
struct ControlAnswer {
  bool accepted = false;
};

class Orchestrator {
 public:
  explicit Orchestrator(World& world);
  ~Orchestrator();

  void start();
  void crash();
  // The last word of a run: whether the store, opened once more, still holds what it has answered.
  void store_reopens();
  // Drops what its dead lives still refer to. REQUIRES: nothing is stepped any more.
  void shut_down();

  // ---- its HTTP API, called in its process ----
  void submit(const JobRequest& request, Reply<SubmitAnswer> reply);
  void events(const std::string& job, const std::optional<std::string>& last_event_id, const WirePtr& wire,
              const SinkPtr& sink);
  // The client at the other end of the wire reads again.
  void client_reads(const SinkPtr& sink);
  void cancel(const std::string& job, Reply<CancelAnswer> reply);
  void show(const std::string& job, Reply<ShowAnswer> reply);
  void drain(const std::string& pool, std::int64_t deadline_ms, Reply<ControlAnswer> reply);
  void undrain(const std::string& pool, Reply<ControlAnswer> reply);
  void reload(const std::string& pool, int model, Reply<ControlAnswer> reply);
  void purge(const std::string& pool, bool force, Reply<ControlAnswer> reply);
  void open_session(const contract::CreateSessionRequest& session, Reply<SessionAnswer> reply);
  void show_session(const std::string& session, Reply<SessionAnswer> reply);
  void close_session(const std::string& session, Reply<SessionAnswer> reply);
  void pool_seen(const contract::PoolState& state, Reply<base::Result<std::int64_t>> reply);
  void pool_left(const std::string& pool, Reply<ControlAnswer> reply);
  void report(const pool_managerd::registration::Report& report);

 private:
  struct LiveJob {
    JobRequest request;
    orchestratord::streaming::StreamPtr stream;
  };
  struct Life;
  using Command = orchestratord::brain::Command;

  orchestratord::brain::Restored restored_state(const orchestratord::state_store::RestoredState& state);
  void post(orchestratord::brain::Event event);
  void drain();
  void step(orchestratord::brain::Event event);
  void plant(std::vector<Command>& commands);
  template <class Event>
  void ask_of_session(Event event, Reply<SessionAnswer> reply);
  template <class Event>
  void control(Event event, Reply<ControlAnswer> reply);
  void arm();
  void tick();
  void refuse_task(const std::string& task, const base::Error& error);
  void serve_stored(const std::string& job, const Row& row,
                    const std::optional<orchestratord::streaming::EventId>& last_event_id, SimExchange& exchange);

  void run(orchestratord::brain::CommitAdmission& c);
  void run(orchestratord::brain::CommitTransition& c);
  void run(orchestratord::brain::CommitSession& c);
  void run(orchestratord::brain::ForgetSession& c);
  void run(orchestratord::brain::RememberPool& c);
  void run(orchestratord::brain::ForgetPool& c);
  void run(orchestratord::brain::CommitPoolOrders& c);
  void run(orchestratord::brain::PublishQueued& c);
  void run(orchestratord::brain::SealStream& c);
  void run(orchestratord::brain::Finish& c);
  void run(orchestratord::brain::Execute& c);
  void run(orchestratord::brain::AbortExecute& c);
  void run(orchestratord::brain::StartWorker& c);
  void run(orchestratord::brain::StopWorker& c);
  void run(orchestratord::brain::AskPoolState& c);
  void run(orchestratord::brain::Log&) {}
  void run(orchestratord::brain::Count&) {}
  void run(orchestratord::brain::CountPlacement&) {}
  void run(orchestratord::brain::PublishStanding&) {}
  void run(orchestratord::brain::PublishQueueRoom&) {}
  void run(orchestratord::brain::ReviewQueue& c);
  void run(orchestratord::brain::Drained&) {}
  template <class Answer>
  void run(Answer& c);

  World& world_;
  // Of planted bugs.
  std::int64_t swaps_ = 0;
  std::map<std::string, std::int64_t> used_ms_;
  std::optional<orchestratord::brain::StartWorker> last_start_;
  std::int64_t last_start_ms_ = 0;
  std::int64_t callers_ = 0;
  base::SeededEntropy entropy_;
  std::unique_ptr<Life> life_;
  std::vector<std::unique_ptr<Life>> dead_;  // closures on their way may still refer to them
};

}  // namespace llorch::sim
