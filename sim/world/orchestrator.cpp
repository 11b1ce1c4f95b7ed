#include "sim/world/orchestrator.h"

#include <fmt/core.h>

#include <algorithm>

#include "contract/json.h"
#include "net/sse/sse.h"
#include "sim/world/life.h"
#include "sim/world/world.h"

namespace llorch::sim {

namespace brain = orchestratord::brain;
namespace jobs = orchestratord::jobs;
namespace state_store = orchestratord::state_store;
namespace streaming = orchestratord::streaming;
using base::Error;
using base::ErrorCode;
using base::JobId;

namespace {

constexpr std::int64_t kTickMs = 1'000;
// After a hang, until what was late has happened.
constexpr std::int64_t kSettledUs = 3'000 * kMs;
constexpr std::int64_t kStoreRetryMs = 500;
constexpr std::int64_t kContextTokens = 1'000;

jobs::JobSpec spec_of(const JobRequest& r, const Options& o) {
  const ModelOptions& model = o.models[static_cast<std::size_t>(r.model)];
  jobs::JobSpec spec{.job_id = JobId(r.task_id),
                     .correlation_id = {},
                     .model = {.model_ref = "file:/" + model.name,
                               .digest = "sha256:" + model.name,
                               .context_length = kContextTokens,
                               .memory_bytes = model.bytes,
                               .devices = model.devices},
                     .priority = r.priority,
                     .tokens_in = r.tokens_in,
                     .max_tokens = r.max_tokens,
                     .timeout_ms = r.timeout_ms,
                     .deadline_ms = r.deadline_ms,
                     .placement = r.placement,
                     .session_id = r.session ? std::optional(base::SessionId(*r.session)) : std::nullopt,
                     .tenant_id = caller_of(r)};
  if (o.plant == Plant::kPlacementIgnored) spec.placement = {};
  if (o.plant == Plant::kTimesOutEarly && spec.timeout_ms) *spec.timeout_ms /= 2;
  if (o.plant == Plant::kTimesOutLate && spec.timeout_ms) *spec.timeout_ms *= 3;
  return spec;
}

brain::BrainConfig brain_config(const Options& o) {
  brain::BrainConfig config = o.brain;
  if (o.plant == Plant::kSessionsOutlive) config.sessions.ttl_ms *= 3;
  if (o.plant == Plant::kGivesUpEarly) config.retry.max_attempts = 1;
  if (o.plant == Plant::kSilentPoolServes) config.heartbeat.missed_threshold = 1'000;
  if (o.plant == Plant::kQuotaOneMore && config.quotas.max_concurrent_jobs > 0) ++config.quotas.max_concurrent_jobs;
  return config;
}

}  // namespace

Orchestrator::Orchestrator(World& world) : world_(world), entropy_(world.options.seed) {}
Orchestrator::~Orchestrator() = default;

// ---- the process ----------------------------------------------------------------------------------------------------

void Orchestrator::start() {
  world_.orchestrator_process.start();
  world_.trace("orchestratord starts", "", static_cast<std::int64_t>(world_.orchestrator_process.life));
  life_ = std::make_unique<Life>(*this, brain_config(world_.options));
  const auto state = life_->store.open();
  if (!state) return world_.crash_orchestrator();
  world_.oracle.life_begins(world_.disk, world_.loop.now(world_.orchestrator_process));
  post(restored_state(*state));
  world_.loop.post(world_.orchestrator_process, kTickMs * kMs, [this] { tick(); });
}

brain::Restored Orchestrator::restored_state(const state_store::RestoredState& state) {
  brain::Restored out;
  for (const auto& [pool, endpoint] : state.pool_endpoints) out.pool_endpoints.push_back(endpoint);
  out.pool_orders = state.pool_orders;
  for (auto& [pool, orders] : out.pool_orders) {
    if (world_.options.plant == Plant::kDrainForgotten) orders.draining = false;
    if (world_.options.plant == Plant::kReloadForgotten) orders.reload.reset();
    if (world_.options.plant == Plant::kPurgeForgotten) orders.purged.clear();
  }
  out.sessions = state.sessions;
  if (world_.options.plant != Plant::kRefillQuotas) out.tenants = state.tenants;
  if (world_.options.plant == Plant::kRefillSessions) {
    for (auto& session : out.sessions) session.use = {};
  }
  for (const state_store::RestoredJob& restored : state.jobs) {
    const std::string& job = restored.job.job_id.value;
    const Row row = row_of(world_, restored.job);
    if (world_.options.plant == Plant::kForgetRunningJobs && row.status == contract::JobStatus::kRunning) continue;
    life_->live[job] = {row.request, life_->hub.open(JobId(job), row.request.on_disconnect)};
    out.jobs.push_back({.spec = spec_of(row.request, world_.options),
                        .status = row.status,
                        .attempts = row.attempts,
                        .submitted_unix_ms = row.submitted_unix_ms,
                        .session_key = row.session_key,
                        .payload_available = restored.payload.has_value()});
  }
  if (world_.options.plant == Plant::kRestoreNewestFirst) std::reverse(out.jobs.begin(), out.jobs.end());
  return out;
}

void Orchestrator::crash() {
  if (!world_.orchestrator_process.alive) return;
  world_.trace("orchestratord crashes", "");
  if (!life_->in_mid_stream.empty()) world_.oracle.reached("crash with a job in mid-stream");
  if (!life_->starting.empty()) world_.oracle.reached("crash with a start in flight");
  life_->store.crash();
  life_->drop_clients();
  world_.orchestrator_process.alive = false;
  world_.network.died(world_.orchestrator_process);
  dead_.push_back(std::move(life_));
}

void Orchestrator::store_reopens() {
  life_->store.crash();
  Store next(world_, [](jobs::CommitId, const base::Result<>&) {});
  if (!next.open()) world_.oracle.violate("the store cannot be opened on a disk that works");
  next.drop();
}

void Orchestrator::shut_down() {
  if (life_) dead_.push_back(std::move(life_));
  for (const auto& life : dead_) {
    life->drop_clients();
    life->store.drop();
  }
}

void Orchestrator::post(brain::Event event) {
  life_->mailbox.push_back(std::move(event));
  if (std::exchange(life_->draining, true)) return;
  world_.loop.post(world_.orchestrator_process, 10, [this] { drain(); });
}

void Orchestrator::drain() {
  while (!life_->mailbox.empty()) {
    brain::Event event = std::move(life_->mailbox.front());
    life_->mailbox.pop_front();
    step(std::move(event));
  }
  life_->draining = false;
  arm();
}

// An answer to a caller.
template <class Answer>
void Orchestrator::run(Answer& c) {
  life_->port.answer(std::move(c));
}

void Orchestrator::step(brain::Event event) {
  world_.trace_event(event);
  world_.oracle.heard(event);
  std::vector<Command> commands;
  life_->brain.step(std::move(event), world_.loop.now(world_.orchestrator_process), commands);
  life_->brain.verify();
  if (world_.options.plant != Plant::kNone) plant(commands);
  for (Command& command : commands) {
    world_.trace_command(command);
    world_.oracle.commanded(command, world_.disk);
    std::visit([this](auto& c) { run(c); }, command);
  }
}

// Of what the brain commands, what a bug would make of it.
void Orchestrator::plant(std::vector<Command>& commands) {
  const Plant plant = world_.options.plant;
  std::vector<Command> out;
  for (Command& command : commands) {
    const auto* execute = std::get_if<brain::Execute>(&command);
    const auto* stop = std::get_if<brain::StopWorker>(&command);
    const auto* start = std::get_if<brain::StartWorker>(&command);
    if (stop != nullptr && plant == Plant::kStopIsLost) continue;
    if (stop != nullptr) ++swaps_;
    if (execute != nullptr && plant == Plant::kSwapLosesJobs && swaps_ > 0 && execute->execution.value % 2 == 0)
      continue;
    out.push_back(command);
    if (execute != nullptr && plant == Plant::kDispatchTwice && execute->attempt >= 2) {
      brain::Execute again = *execute;
      again.execution.value += 1'000'000;
      out.emplace_back(again);
    }
    const std::string endpoint = execute != nullptr ? "http://" + execute->pool_id.value : std::string();
    const auto stop_it = [&] { out.emplace_back(brain::StopWorker{execute->pool_id, endpoint, execute->worker_id}); };
    if (execute != nullptr && plant == Plant::kUnloadRacesRequest &&
        world_.options.brain.eviction.worker_idle_ttl_ms > 0) {
      std::int64_t& used_ms = used_ms_[execute->worker_id.value];
      const std::int64_t idle_ms = world_.loop.now_ms() - std::exchange(used_ms, world_.loop.now_ms());
      if (idle_ms >= world_.options.brain.eviction.worker_idle_ttl_ms * 9 / 10) stop_it();
    }
    const bool drains = std::any_of(world_.disk.orders.begin(), world_.disk.orders.end(),
                                    [](const auto& item) { return item.second.draining; });
    if (execute != nullptr && plant == Plant::kDrainKillsJobs && drains) stop_it();
    if (start != nullptr) {
      last_start_ = *start;
      last_start_ms_ = world_.loop.now_ms();
    }
    // Somebody waits for memory while another one's model loads.
    const auto* admitted = std::get_if<brain::AnswerSubmit>(&command);
    if (plant == Plant::kEvictsLoading && admitted != nullptr && last_start_ &&
        world_.loop.now_ms() - last_start_ms_ < 1'000) {
      out.emplace_back(brain::StopWorker{last_start_->pool_id, last_start_->endpoint,
                                         base::WorkerId(last_start_->request.worker_id)});
    }
  }
  commands = std::move(out);
}

void Orchestrator::arm() {
  const std::int64_t next = life_->brain.next_wakeup_ms();
  if (next == kForever || next == life_->next_wake_ms) return;
  life_->next_wake_ms = next;
  const std::int64_t delay_us = std::max<std::int64_t>(0, next - world_.loop.now_ms()) * kMs;
  world_.loop.post(world_.orchestrator_process, delay_us, [this, ticket = ++life_->wakes] {
    if (ticket != life_->wakes) return;
    life_->next_wake_ms = -1;
    post(brain::Tick{});
  });
}

void Orchestrator::tick() {
  life_->hub.tick();
  life_->relay.tick();
  const std::int64_t awake_us = world_.loop.now_us() - world_.orchestrator_process.hung_until_us;
  if (awake_us > kSettledUs) {
    world_.oracle.check_bounds();
    world_.disk_check.check_keys(false);
  }
  world_.loop.post(world_.orchestrator_process, kTickMs * kMs, [this] { tick(); });
}

// ---- clients --------------------------------------------------------------------------------------------------------

void Orchestrator::submit(const JobRequest& request, Reply<SubmitAnswer> reply) {
  const std::string& task = request.task_id;
  if (const auto waiting = life_->gate.find(task); waiting != life_->gate.end()) {
    waiting->second.push_back(std::move(reply));
    return;
  }
  const auto stored = life_->store.find(task);
  if (!stored) return reply({.accepted = false, .refusal = stored.error().code, .retry_after_ms = kStoreRetryMs});
  if (*stored) {
    world_.oracle.reached("submitted again, the first one had been accepted");
    world_.oracle.gives_202(task, world_.disk);
    return reply({.accepted = true});
  }
  // Who comes back after its job's row has gone would start it again; nobody here waits for that long.
  if (world_.disk.retired.contains(task)) return reply({.accepted = false, .refusal = ErrorCode::kDeadlineUnmet});
  life_->gate[task].push_back(std::move(reply));
  life_->live[task] = {request, life_->hub.open(JobId(task), request.on_disconnect)};
  world_.oracle.arrives(task);
  jobs::JobSpec spec = spec_of(request, world_.options);
  if (world_.options.plant == Plant::kNewCallers) spec.tenant_id += fmt::format("-{}", ++callers_);
  life_->port.ask<brain::AnswerSubmit>(brain::Submit{{}, std::move(spec)},
                                       [this, task](const brain::AnswerSubmit& answer) {
                                         if (!answer.result) return refuse_task(task, answer.result.error());
                                         world_.oracle.gives_202(task, world_.disk);
                                         const auto waiting = std::move(life_->gate.extract(task).mapped());
                                         for (const auto& each : waiting) each({.accepted = true});
                                       });
}

void Orchestrator::refuse_task(const std::string& task, const Error& error) {
  const auto node = life_->live.extract(task);
  life_->hub.forget(JobId(task));
  node.mapped().stream->abort_clients();
  SubmitAnswer answer{.accepted = false, .refusal = error.code};
  for (const auto& [key, value] : error.details) {
    if (const auto* number = std::get_if<std::int64_t>(&value); number && key == "retry_after_ms")
      answer.retry_after_ms = *number;
  }
  const auto waiting = std::move(life_->gate.extract(task).mapped());
  for (const auto& each : waiting) each(answer);
}

void Orchestrator::events(const std::string& job, const std::optional<std::string>& last_event_id, const WirePtr& wire,
                          const SinkPtr& sink) {
  const auto exchange = std::make_shared<SimExchange>(world_.loop, world_.orchestrator_process, wire, sink);
  exchange->listen();
  exchange->on_lost([this, job, sink](net::CloseReason reason) {
    if (reason == net::CloseReason::kAborted && sink->stalled) world_.oracle.reached("slow client cut off");
    world_.oracle.stream_lost(job);
  });
  life_->exchanges.push_back(exchange);
  life_->exchange_of[sink.get()] = exchange;
  std::optional<streaming::EventId> held;
  if (last_event_id) {
    held = *streaming::parse_event_id(*last_event_id);
    if (world_.options.plant == Plant::kResumeOneLate) exchange->lose_first_event();
  }
  if (const streaming::StreamPtr stream = life_->hub.find(JobId(job))) {
    const auto progress = stream->progress(world_.loop.now_ms());
    if (held && held->seq > progress.id.seq && !progress.finished) {
      world_.oracle.reached("reconnect after restart before the replay came so far");
    }
    return stream->attach({.exchange = exchange, .last_event_id = held}, world_.loop.now_ms());
  }
  const auto row = life_->store.find(job);
  if (!row) return void(exchange->respond_error(row.error()));
  if (!*row) return void(exchange->respond_error({ErrorCode::kJobNotFound, "", {}}));
  if (!contract::is_terminal((*row)->status)) {
    world_.oracle.violate("a live job has no stream: " + job);
    return void(exchange->respond_error({ErrorCode::kInternal, "", {}}));
  }
  serve_stored(job, **row, held, *exchange);
}

void Orchestrator::serve_stored(const std::string& job, const Row& row, const std::optional<streaming::EventId>& held,
                                SimExchange& exchange) {
  const auto id = streaming::parse_event_id(row.last_event_id);
  const auto answer = streaming::answer_from_store({*id}, held);
  if (answer == streaming::StoredAnswer::kOffsetGone) {
    world_.oracle.reached("410 for events no longer held");
    const auto finished = life_->finished_ms.find(job);
    const auto& limits = world_.options.stream;
    // Where memory is short, what was sent goes first (ADR 0018).
    const bool is_short = limits.buffer_bytes_max < contract::StreamConfig{}.buffer_bytes_max;
    if (finished != life_->finished_ms.end() && !is_short &&
        world_.loop.now_ms() - finished->second < std::min(limits.retain_ms, limits.reconnect_grace_ms)) {
      world_.oracle.violate("events are gone before their client could come back: " + job);
    }
    return void(exchange.respond_error({ErrorCode::kStreamOffsetGone, "", {}}));
  }
  world_.oracle.reached("stored ending served");
  exchange.start_stream(200, {});
  if (answer == streaming::StoredAnswer::kTerminalEvent) {
    std::string frame;
    net::sse::append_event(frame, {.event = row.event, .id = row.last_event_id, .data = row.data});
    exchange.write(std::move(frame));
  }
  exchange.end();
}

void Orchestrator::client_reads(const SinkPtr& sink) {
  if (!life_) return;
  const auto it = life_->exchange_of.find(sink.get());
  if (it == life_->exchange_of.end()) return;
  if (const auto exchange = it->second.lock()) exchange->flush();
}

void Orchestrator::cancel(const std::string& job, Reply<CancelAnswer> reply) {
  if (life_->gate.contains(job)) world_.oracle.reached("cancel before the 202");
  if (world_.options.plant == Plant::kCancelsInWordsOnly) {
    world_.oracle.cancel_settled(job, world_.disk);
    return reply({.known = true, .settled = true});
  }
  life_->port.ask<brain::AnswerCancel>(
      brain::CancelRequested{{}, JobId(job), jobs::CancelReason::kClientRequest},
      [this, job, reply = std::move(reply)](const brain::AnswerCancel& answer) {
        if (!answer.status) {
          const auto row = life_->store.find(job);
          if (!row) return reply({.known = true});  // 503: whether it ended is not known
          const bool known = row->has_value();
          return reply({.known = known, .settled = known && contract::is_terminal((*row)->status)});
        }
        const bool settled = contract::is_terminal(*answer.status);
        if (settled) world_.oracle.cancel_settled(job, world_.disk);
        reply({.known = true, .settled = settled});
      });
}

void Orchestrator::show(const std::string& job, Reply<ShowAnswer> reply) {
  life_->port.ask<brain::AnswerQueryJob>(
      brain::QueryJob{{}, JobId(job)}, [this, job, reply = std::move(reply)](const brain::AnswerQueryJob& answer) {
        if (answer.job && !contract::is_terminal(answer.job->status)) {
          return reply({.known = true, .status = answer.job->status, .tokens_out = answer.job->tokens_out});
        }
        const auto row = life_->store.find(job);
        if (!row) return reply({.known = true});  // 503: the client asks again
        if (!*row) return reply({});
        reply({.known = true, .status = (*row)->status, .tokens_out = (*row)->tokens_out});
      });
}

// ---- operator -------------------------------------------------------------------------------------------------------

template <class Event>
void Orchestrator::control(Event event, Reply<ControlAnswer> reply) {
  life_->port.ask<brain::AnswerPoolControl>(std::move(event),
                                            [reply = std::move(reply)](const brain::AnswerPoolControl& answer) {
                                              reply({.accepted = answer.result.has_value()});
                                            });
}

void Orchestrator::drain(const std::string& pool, std::int64_t deadline_ms, Reply<ControlAnswer> reply) {
  control(brain::DrainPool{{}, base::PoolId(pool), deadline_ms}, std::move(reply));
}

void Orchestrator::undrain(const std::string& pool, Reply<ControlAnswer> reply) {
  life_->port.ask<brain::AnswerPoolControl>(
      brain::UndrainPool{{}, base::PoolId(pool)}, [reply = std::move(reply)](const brain::AnswerPoolControl& answer) {
        // A pool that nobody has heard of has no drain to take back.
        reply({.accepted = answer.result || answer.result.error().code == ErrorCode::kPoolNotFound});
      });
}

void Orchestrator::reload(const std::string& pool, int model, Reply<ControlAnswer> reply) {
  JobRequest request;
  request.model = model;
  control(brain::ReloadPool{{}, base::PoolId(pool), spec_of(request, world_.options).model, 10'000}, std::move(reply));
}

void Orchestrator::purge(const std::string& pool, bool force, Reply<ControlAnswer> reply) {
  control(brain::PurgePool{{}, base::PoolId(pool), {}, true, force}, std::move(reply));
}

// ---- sessions -------------------------------------------------------------------------------------------------------

template <class Event>
void Orchestrator::ask_of_session(Event event, Reply<SessionAnswer> reply) {
  life_->port.ask<brain::AnswerSession>(
      std::move(event),
      [reply = std::move(reply)](const brain::AnswerSession& answer) { reply({.there = answer.result.has_value()}); });
}

void Orchestrator::open_session(const contract::CreateSessionRequest& session, Reply<SessionAnswer> reply) {
  ask_of_session(brain::OpenSession{{}, session}, std::move(reply));
}

void Orchestrator::show_session(const std::string& session, Reply<SessionAnswer> reply) {
  ask_of_session(brain::QuerySession{{}, base::SessionId(session)}, std::move(reply));
}

void Orchestrator::close_session(const std::string& session, Reply<SessionAnswer> reply) {
  ask_of_session(brain::CloseSession{{}, base::SessionId(session)}, std::move(reply));
}

// ---- pools ----------------------------------------------------------------------------------------------------------

void Orchestrator::pool_seen(const contract::PoolState& state, Reply<base::Result<std::int64_t>> reply) {
  life_->port.ask<brain::AnswerPool>(
      brain::PoolSeen{{}, state, {}},
      [reply = std::move(reply)](const brain::AnswerPool& answer) { reply(answer.heartbeat_interval_ms); });
}

void Orchestrator::pool_left(const std::string& pool, Reply<ControlAnswer> reply) {
  life_->port.ask<brain::AnswerPool>(brain::PoolLeft{{}, base::PoolId(pool)},
                                     [reply = std::move(reply)](const brain::AnswerPool& answer) {
                                       reply({.accepted = answer.heartbeat_interval_ms.has_value()});
                                     });
}

void Orchestrator::report(const pool_managerd::registration::Report& report) {
  if (const auto* ready = std::get_if<contract::WorkerReady>(&report)) return post(brain::WorkerReady{*ready});
  post(brain::WorkerFailed{std::get<contract::WorkerFailed>(report)});
}

}  // namespace llorch::sim
