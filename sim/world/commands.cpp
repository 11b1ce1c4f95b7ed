// What the brain commands.
#include "contract/json.h"
#include "contract/worker.h"
#include "sim/world/life.h"
#include "sim/world/pool.h"

namespace llorch::sim {

namespace brain = orchestratord::brain;
namespace state_store = orchestratord::state_store;
namespace streaming = orchestratord::streaming;
using base::Error;
using base::ErrorCode;

namespace {

constexpr std::int64_t kCallTimeoutMs = 30'000;
constexpr std::int64_t kStateTimeoutMs = 5'000;

}  // namespace

void Orchestrator::run(brain::CommitAdmission& c) {
  life_->store.admit(c, life_->live.at(c.job_id.value).request);
  if (world_.options.plant == Plant::kAnswerBeforeCommit) post(brain::Committed{{c.commit}});
}

void Orchestrator::run(brain::CommitTransition& c) {
  const LiveJob& live = life_->live.at(c.record.job_id.value);
  state_store::Transition transition{c.record.job_id, {}};
  state_store::JobProgress& p = transition.progress;
  p.status = c.record.status;
  p.attempts = c.record.attempts;
  if (c.record.worker_id) p.worker_id = c.record.worker_id->value;
  if (c.record.pool_id) p.pool_id = c.record.pool_id->value;
  p.dispatched_unix_ms = c.record.dispatched_unix_ms;
  p.started_unix_ms = c.record.started_unix_ms;
  p.finished_unix_ms = c.record.finished_unix_ms;
  p.tokens_out = c.record.tokens_out;
  p.decode_time_ms = c.record.decode_time_ms;
  p.end = c.record.end;
  if (c.record.error) p.error = contract::error_body(*c.record.error, {});
  if (contract::is_terminal(c.record.status)) {
    const streaming::EventId id = live.stream->terminal_id();
    p.last_event_id = streaming::to_string(id);
    p.tokens_out = id.seq - streaming::kFirstTokenSeq;
    post(brain::StreamCounted{c.record.job_id, *p.tokens_out});
  }
  life_->store.change(c.commit, std::move(transition));
}

void Orchestrator::run(brain::CommitSession& c) { life_->store.remember_session(c.commit, c.session); }
void Orchestrator::run(brain::ForgetSession& c) { life_->store.forget_session(c.session_key); }

void Orchestrator::run(brain::RememberPool& c) {
  life_->store.note(state_store::RememberPool{{c.pool_id, c.endpoint}});
}
void Orchestrator::run(brain::ForgetPool& c) {
  if (world_.options.plant == Plant::kGoodbyeUnheard) {
    world_.disk.orders.erase(c.pool_id.value);
    return post(brain::Committed{{c.commit}});
  }
  life_->store.forget_pool(c.commit, c.pool_id);
}
void Orchestrator::run(brain::CommitPoolOrders& c) {
  life_->store.set_orders(c.commit, {c.pool_id, c.endpoint, c.orders});
}

void Orchestrator::run(brain::PublishQueued& c) {
  life_->live.at(c.job_id.value).stream->queued({c.job_id.value, c.queue_position, c.predicted_start_ms});
}

void Orchestrator::run(brain::SealStream& c) { life_->live.at(c.job_id.value).stream->seal(); }

void Orchestrator::run(brain::Finish& c) {
  const auto node = life_->live.extract(c.job_id.value);
  const std::string data = c.end ? contract::encode(*c.end) : contract::encode(contract::error_body(*c.error, {}));
  node.mapped().stream->finish({.event = c.end ? "end" : "error", .data = data}, world_.loop.now_ms());
  life_->finished_ms[c.job_id.value] = world_.loop.now_ms();
}

void Orchestrator::run(brain::Execute& c) {
  const LiveJob& live = life_->live.at(c.job_id.value);
  const auto progress = live.stream->progress(world_.loop.now_ms());
  if (progress.tokens_count > 0 && progress.clients_count > 0) world_.oracle.reached("replay under a reading client");
  const JobRequest& r = live.request;
  const contract::ExecuteRequest body{.job_id = r.task_id,
                                      .prompt_tokens = std::vector<std::int32_t>(static_cast<std::size_t>(r.tokens_in)),
                                      .max_tokens = r.max_tokens,
                                      .seed = r.seed,
                                      .timeout_ms = c.timeout_ms};
  const bool plants = world_.options.plant == Plant::kReplayAppends;
  if (plants) world_.planted_shift[r.task_id] = progress.tokens_count;
  const auto execution = c.execution;
  life_->relay.execute(
      {.execution = execution.value,
       .stream = live.stream,
       .worker_uri = c.uri,
       .body = contract::encode(body),
       .correlation_id = {},
       .worker_id = c.worker_id.value,
       .model = world_.options.models[static_cast<std::size_t>(r.model)].name,
       .queue_wait_ms = c.queue_wait_ms,
       .queue_position = c.queue_position,
       .predicted_start_ms = c.predicted_start_ms,
       .session = c.session,
       .tokens_max = plants ? kForever : r.max_tokens,
       .expected = {.seed = r.seed, .prompt_sha256 = {}, .parameters_sha256 = {}, .model_digest = {}}},
      {.started = [this, execution] { post(brain::ExecuteStarted{execution}); },
       .progress =
           [this, execution](std::int64_t tokens) {
             if (tokens > 0) life_->in_mid_stream.insert(execution.value);
             post(brain::ExecuteProgress{execution, tokens});
           },
       .ended =
           [this, execution](streaming::Relay::Reports::Outcome outcome) {
             life_->in_mid_stream.erase(execution.value);
             post(brain::ExecuteEnded{execution, outcome.tokens_out, std::move(outcome.end), std::move(outcome.error)});
           }});
}

void Orchestrator::run(brain::ReviewQueue& c) {
  world_.oracle.reached("long queue reviewed");
  world_.loop.post(world_.orchestrator_process, 1'000,
                   [this, report = orchestratord::queue_optimizer::review(c.snapshot, [] { return false; })] {
                     post(brain::QueueReviewed{report});
                   });
}

void Orchestrator::run(brain::AbortExecute& c) { life_->relay.abort(c.execution.value); }

void Orchestrator::run(brain::StartWorker& c) {
  Pool* pool = world_.pool_at(c.endpoint);
  life_->starting.insert(c.request.worker_id);
  const auto answer = [this, worker = base::WorkerId(c.request.worker_id)](const CallResult<Pool::MaybeError>& result) {
    life_->starting.erase(worker.value);
    if (result) return post(brain::StartWorkerAnswered{worker, *result});
    post(brain::StartWorkerAnswered{worker, Error{ErrorCode::kUnreachable, "the pool manager did not answer", {}}});
  };
  call<Pool::MaybeError>(
      world_.network, world_.orchestrator_process, pool->process(), kCallTimeoutMs,
      [pool, wanted = c.request](Reply<Pool::MaybeError> reply) { pool->start_worker(wanted, std::move(reply)); },
      answer);
}

void Orchestrator::run(brain::StopWorker& c) {
  Pool* pool = world_.pool_at(c.endpoint);
  call<bool>(
      world_.network, world_.orchestrator_process, pool->process(), kCallTimeoutMs,
      [pool, worker = c.worker_id.value](Reply<bool> reply) { pool->stop_worker(worker, std::move(reply)); },
      [](const CallResult<bool>&) {});
}

void Orchestrator::run(brain::AskPoolState& c) {
  Pool* pool = world_.pool_at(c.endpoint);
  call<contract::PoolState>(
      world_.network, world_.orchestrator_process, pool->process(), kStateTimeoutMs,
      [pool](const Reply<contract::PoolState>& reply) { reply(pool->asked_state()); },
      [this, endpoint = c.endpoint](const CallResult<contract::PoolState>& state) {
        if (!state) return post(brain::PoolUnreachable{endpoint});
        post(brain::PoolSeen{{}, *state, endpoint});
      });
}

}  // namespace llorch::sim
