#pragma once
// Carries out what the brain asks for. Runs on the brain's thread and never blocks: everything goes to a store, a stream,
// a socket or a log that queues.
#include <atomic>
#include <functional>
#include <memory>

#include "orchestratord/api/context.h"
#include "orchestratord/app/brain_host/pool_client.h"
#include "orchestratord/streaming/relay.h"

namespace llorch::orchestratord::app::brain_host {

class CommandRunner {
 public:
  struct Options {
    const api::Context* context = nullptr;  // these REQUIRE not null and outlive the runner
    streaming::Relay* relay = nullptr;
    PoolClient* pools = nullptr;
    net::Executor* aside = nullptr;  // for reviews of the queue
    std::function<void()> on_drained;
  };
  explicit CommandRunner(Options options) : options_(std::move(options)), context_(*options_.context) {}

  void execute(brain::Command command);
  // A review that runs aside ends soon. REQUIRES: nothing is executed any more.
  void stop() { *stopping_ = true; }

 private:
  void run(brain::CommitAdmission& command);
  void run(brain::CommitTransition& command);
  void run(brain::CommitSession& command);
  void run(brain::ForgetSession& command);
  void run(brain::RememberPool& command);
  void run(brain::ForgetPool& command);
  void run(brain::CommitPoolOrders& command);
  void run(brain::PublishQueued& command);
  void run(brain::SealStream& command);
  void run(brain::Finish& command);
  void run(brain::Execute& command);
  void run(brain::AbortExecute& command);
  void run(brain::StartWorker& command) { options_.pools->start_worker(command); }
  void run(brain::StopWorker& command) { options_.pools->stop_worker(command); }
  void run(brain::AskPoolState& command) { options_.pools->ask_state(command); }
  void run(brain::Log& command);
  void run(brain::Count& command) { context_.metrics->count(command); }
  void run(brain::CountPlacement& command) { context_.metrics->count(command); }
  void run(brain::PublishStanding& command) { context_.board->set(std::move(command)); }
  void run(brain::PublishQueueRoom& command) { context_.board->set(std::move(command)); }
  void run(brain::ReviewQueue& command);
  void run(brain::Drained&) { options_.on_drained(); }
  template <class Answer>
  void run(Answer& command) {
    context_.brain->answer(std::move(command));
  }
  state_store::Store::Done committed(brain::CommitId id);

  const Options options_;
  const api::Context& context_;
  // Outlives a review that is still waiting for its turn.
  const std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace llorch::orchestratord::app::brain_host
