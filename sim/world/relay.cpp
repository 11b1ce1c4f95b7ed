#include "sim/world/relay.h"

#include "sim/world/worker.h"
#include "sim/world/world.h"

namespace llorch::sim {

namespace brain = orchestratord::brain;
using base::Error;
using base::ErrorCode;

namespace {
constexpr std::int64_t kHeadTimeoutMs = 30'000;
constexpr std::int64_t kProgressPeriodMs = 1'000;

Error worker_reset(const char* why) { return Error{ErrorCode::kWorkerReset, why, {}}; }
}  // namespace

class Relay::Run final : public ExecuteSink, public std::enable_shared_from_this<Run> {
 public:
  Run(Relay& relay, brain::Execute order, JobRequest request, orchestratord::streaming::StreamPtr stream)
      : relay_(relay), order_(std::move(order)), request_(std::move(request)), stream_(std::move(stream)) {}

  void begin();
  void abort();
  bool in_mid_stream() const { return tokens_out_ > 0; }

  void on_refused(Error error) override { end({}, std::move(error)); }
  void on_started(contract::StartedEvent event) override;
  void on_tokens(std::vector<contract::TokenEvent> tokens) override;
  void on_end(contract::EndEvent event) override;
  void on_error(Error error) override { end({}, std::move(error)); }

 private:
  void end(std::optional<contract::EndEvent> end_event, std::optional<Error> error);

  Relay& relay_;
  const brain::Execute order_;
  const JobRequest request_;
  const orchestratord::streaming::StreamPtr stream_;
  WirePtr wire_;
  bool answered_ = false, started_ = false, ended_ = false;
  std::int64_t tokens_out_ = 0, shift_ = 0;
  std::optional<std::int64_t> last_progress_ms_;
};

void Relay::Run::begin() {
  World& world = relay_.world_;
  if (world.options.plant == Plant::kReplayAppends) {
    shift_ = stream_->progress(0).tokens_count;
  } else {
    stream_->begin_attempt();
  }
  relay_.hub_.relay_begins(*stream_, [](bool) {});
  WorkerProcess* worker = world.worker_at(order_.uri);
  const auto self = shared_from_this();
  if (worker == nullptr) {
    return world.loop.post(world.orchestrator_process, kMs, [self] {
      self->end({}, Error{ErrorCode::kUnreachable, "nobody listens there", {}});
    });
  }
  wire_ = world.network.connect(
      world.orchestrator_process, worker->process(),
      [worker, self, request = request_, timeout_ms = order_.timeout_ms](const WirePtr& wire) {
        worker->execute(request, timeout_ms, wire, self);
      },
      [self] {
        self->end({}, Error{ErrorCode::kUnreachable, "the connection was refused", {}});
      });
  wire_->on_broken(Wire::kClient, [self] { self->end({}, worker_reset("its stream broke off")); });
  world.loop.post(world.orchestrator_process, kHeadTimeoutMs * kMs, [self] {
    if (!self->answered_) self->end({}, worker_reset("it did not answer"));
  });
}

void Relay::Run::abort() {
  World& world = relay_.world_;
  if (WorkerProcess* worker = world.worker_at(order_.uri)) {
    call<bool>(
        world.network, world.orchestrator_process, worker->process(), 30'000,
        [worker, job = request_.task_id](const Reply<bool>& reply) { reply(worker->cancel(job)); },
        [](const CallResult<bool>&) {});
  }
  if (ended_) return;
  if (wire_) wire_->close(Wire::kClient);
  world.loop.post(world.orchestrator_process, 50, [self = shared_from_this()] {
    self->end({}, Error{ErrorCode::kCancelled, "the relay was told to stop", {}});
  });
}

void Relay::Run::on_started(contract::StartedEvent event) {
  if (ended_) return;
  answered_ = started_ = true;
  event.job_id = request_.task_id;
  event.worker_id = order_.worker_id.value;
  event.queue_wait_ms = order_.queue_wait_ms;
  stream_->started(event);
  relay_.post_(brain::ExecuteStarted{order_.execution});
}

void Relay::Run::on_tokens(std::vector<contract::TokenEvent> tokens) {
  if (ended_) return;
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (!started_ || tokens_out_ + count > request_.max_tokens) return end({}, worker_reset("it breaks the protocol"));
  std::vector<orchestratord::streaming::TokenData> shifted;
  for (const contract::TokenEvent& token : tokens) shifted.push_back({.t = token.t, .i = token.i + shift_});
  const std::int64_t now_ms = relay_.world_.loop.now_ms();
  const base::Result<> appended = stream_->tokens(shifted, now_ms);
  tokens_out_ += count;
  if (!appended) return end({}, appended.error());
  if (last_progress_ms_ && now_ms - *last_progress_ms_ < kProgressPeriodMs) return;
  last_progress_ms_ = now_ms;
  relay_.post_(brain::ExecuteProgress{order_.execution, tokens_out_});
}

void Relay::Run::on_end(contract::EndEvent event) {
  if (ended_) return;
  const auto held = stream_->progress(0);
  if (!held.sealed && held.tokens_count != tokens_out_ + shift_) {
    return end({}, Error{ErrorCode::kReplayDiverged, "the replay ended before what had been sent", {}});
  }
  end(std::move(event), {});
}

void Relay::Run::end(std::optional<contract::EndEvent> end_event, std::optional<Error> error) {
  if (ended_) return;
  ended_ = true;
  const auto self = shared_from_this();
  if (wire_) wire_->close(Wire::kClient);
  relay_.hub_.relay_ends(*stream_);
  relay_.running_.erase(order_.execution.value);
  relay_.post_(brain::ExecuteEnded{order_.execution, tokens_out_, std::move(end_event), std::move(error)});
}

void Relay::execute(const brain::Execute& order, const JobRequest& request,
                    orchestratord::streaming::StreamPtr stream) {
  const auto run = std::make_shared<Run>(*this, order, request, std::move(stream));
  running_.emplace(order.execution.value, run);
  run->begin();
}

void Relay::abort(std::uint64_t execution) {
  const auto it = running_.find(execution);
  if (it == running_.end()) return;
  const auto run = it->second;
  run->abort();
}

bool Relay::in_mid_stream() const {
  for (const auto& [id, run] : running_) {
    if (run->in_mid_stream()) return true;
  }
  return false;
}

}  // namespace llorch::sim
