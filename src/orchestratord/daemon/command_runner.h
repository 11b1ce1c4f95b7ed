#pragma once
// Carries out what the core asks for. Runs on the core's thread and never blocks: everything goes to a store, a stream,
// a socket or a log that queues.
#include <atomic>
#include <functional>
#include <memory>

#include "orchestratord/daemon/pool_client.h"
#include "orchestratord/http/context.h"
#include "orchestratord/streams/relay.h"
#include "orchestratord/traces/span_exporter.h"

namespace llorch::orchestratord::daemon {

class CommandRunner {
 public:
  struct Options {
    const http::Context* context = nullptr;  // these REQUIRE not null and outlive the runner
    streams::Relay* relay = nullptr;
    PoolClient* pools = nullptr;
    net::Executor* aside = nullptr;         // for reviews of the queue
    traces::SpanExporter* spans = nullptr;  // null: nobody is told
    std::function<void()> on_drained;
  };
  explicit CommandRunner(Options options) : options_(std::move(options)), context_(*options_.context) {}

  void execute(core::Command command);
  // Makes a review of the queue that runs on another thread end soon. REQUIRES: nothing is executed any more.
  void stop() { *stopping_ = true; }

 private:
  void run(core::CommitAdmission& command);
  void run(core::CommitTransition& command);
  void run(core::CommitSession& command);
  void run(core::ForgetSession& command);
  void run(core::RememberPool& command);
  void run(core::ForgetPool& command);
  void run(core::CommitDesiredState& command);
  void run(core::PublishQueued& command);
  void run(core::PublishMetrics& command);
  void run(core::ReleaseStream& command);
  void run(core::SealStream& command);
  void run(core::Finish& command);
  void run(core::Execute& command);
  void run(core::AbortExecute& command);
  void run(core::StartWorker& command) { options_.pools->start_worker(command); }
  void run(core::StopWorker& command) { options_.pools->stop_worker(command); }
  void run(core::StageModel& command) { options_.pools->stage_model(command); }
  void run(core::AskPoolState& command) { options_.pools->ask_state(command); }
  void run(core::Log& command);
  void run(core::Count& command) { context_.metrics->count(command); }
  void run(core::CountPlacement& command) { context_.metrics->count(command); }
  void run(core::PublishStanding& command) { context_.board->set(std::move(command)); }
  void run(core::PublishQueueRoom& command) { context_.board->set(std::move(command)); }
  void run(core::ReviewQueue& command);
  void run(core::Drained&) { options_.on_drained(); }
  template <class Answer>
  void run(Answer& command) {
    context_.core->answer(std::move(command));
  }
  store::Store::Done committed(core::CommitId id);

  const Options options_;
  const http::Context& context_;
  // Outlives a review that is still waiting for its turn.
  const std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace llorch::orchestratord::daemon
