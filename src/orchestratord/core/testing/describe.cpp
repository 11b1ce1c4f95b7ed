#include "orchestratord/core/testing/describe.h"

#include <fmt/core.h>

#include "wire/json.h"

namespace llorch::orchestratord::core {
namespace {

using wire::JobStatus;

std::string text(const base::Error& e) {
  std::string out = fmt::format("{} \"{}\"", e.name(), e.message);
  for (const auto& [key, value] : e.details) {
    out += fmt::format(" {}=", key);
    std::visit([&](const auto& v) { out += fmt::format("{}", v); }, value);
  }
  return out;
}
template <class T>
std::string text(const std::optional<T>& v);
std::string text(std::int64_t v) { return std::to_string(v); }
std::string text(const wire::EndEvent& e) { return fmt::format("end({}, {})", e.job_id, e.tokens_out); }
std::string text(JobStatus s) { return std::string(wire::enum_name(s)); }
template <class Tag>
std::string text(const base::Id<Tag>& id) {
  return id.value;
}
std::string text(const LiveJob& j) {
  return fmt::format("{} {} attempts {} at {} in {} because {} on {}", j.job_id.value, text(j.status), j.attempts,
                     text(j.queue_position), text(j.predicted_start_ms), j.reason ? j.reason->human : "-",
                     text(j.worker_id));
}
template <class T>
std::string text(const std::optional<T>& v) {
  return v ? text(*v) : "-";
}
std::string text(const base::LogField::Value& value) {
  return std::visit([](const auto& v) -> std::string { return fmt::format("{}", v); }, value);
}

struct Describe {
  std::string operator()(const CommitAdmission& c) const {
    return fmt::format("CommitAdmission {} {} {}", c.commit.value, c.job_id.value, c.submitted_unix_ms);
  }
  std::string operator()(const CommitTransition& c) const {
    const auto& r = c.record;
    return fmt::format("CommitTransition {} {} {} attempts {} worker {} pool {} times {} {} {} tokens {} {} {}",
                       c.commit.value, r.job_id.value, text(r.status), r.attempts, text(r.worker_id), text(r.pool_id),
                       text(r.dispatched_unix_ms), text(r.started_unix_ms), text(r.finished_unix_ms),
                       text(r.tokens_out), text(r.end), text(r.error));
  }
  std::string operator()(const CommitSession& c) const {
    return fmt::format("CommitSession {} {} {}", c.commit.value, c.session.key, c.session.session_id.value);
  }
  std::string operator()(const ForgetSession& c) const { return fmt::format("ForgetSession {}", c.session_key); }
  std::string operator()(const AnswerSession& c) const {
    return fmt::format("AnswerSession {} {} {}", c.request.value, c.created,
                       c.result ? wire::encode(*c.result) : text(c.result.error()));
  }
  std::string operator()(const AnswerQuerySessions& c) const {
    std::string out = fmt::format("AnswerQuerySessions {}", c.request.value);
    for (const auto& session : c.sessions) out += " | " + wire::encode(session);
    return out;
  }
  std::string operator()(const RememberPool& c) const {
    return fmt::format("RememberPool {} {}", c.pool_id.value, c.endpoint);
  }
  std::string operator()(const ForgetPool& c) const {
    return fmt::format("ForgetPool {} {}", c.commit.value, c.pool_id.value);
  }
  std::string operator()(const AnswerSubmit& c) const {
    return fmt::format("AnswerSubmit {} {} {}", c.request.value, c.job_id.value,
                       c.result ? fmt::format("202 at {} in {}", c.result->queue_position, c.result->predicted_start_ms)
                                : text(c.result.error()));
  }
  std::string operator()(const AnswerCancel& c) const {
    return fmt::format("AnswerCancel {} {} {}", c.request.value, c.job_id.value, text(c.status));
  }
  std::string operator()(const AnswerQueryJob& c) const { return fmt::format("AnswerQueryJob {}", text(c.job)); }
  std::string operator()(const AnswerQueryJobs& c) const {
    std::string out = "AnswerQueryJobs";
    for (const LiveJob& j : c.jobs) out += " | " + text(j);
    return out;
  }
  std::string operator()(const AnswerQueryPools& c) const {
    std::string out = "AnswerQueryPools";
    for (const PoolView& p : c.pools) {
      out += fmt::format(" | {} {} {}", p.pool_id.value, wire::enum_name(p.status), p.endpoint);
      for (const auto& w : p.workers) out += fmt::format(" {}:{}", w.worker_id, wire::enum_name(w.status));
    }
    return out;
  }
  std::string operator()(const AnswerQueryGauges& c) const {
    return fmt::format("AnswerQueryGauges {} {} {} {}", c.gauges.queue_depth[0], c.gauges.queue_depth[1],
                       c.gauges.executions_active, c.gauges.workers_total);
  }
  std::string operator()(const AnswerQueryPlacement& c) const {
    return fmt::format("AnswerQueryPlacement {} {}", c.request.value, wire::encode(c.snapshot));
  }
  std::string operator()(const AnswerQueryPreview& c) const {
    return fmt::format("AnswerQueryPreview {} {}", c.request.value, wire::encode(c.preview));
  }
  std::string operator()(const AnswerArrival& c) const {
    return fmt::format("AnswerArrival {} {}", c.request.value, c.refusal ? text(*c.refusal) : "-");
  }
  std::string operator()(const AnswerPool& c) const {
    return fmt::format(
        "AnswerPool {} {}", c.request.value,
        c.heartbeat_interval_ms ? text(*c.heartbeat_interval_ms) : text(c.heartbeat_interval_ms.error()));
  }
  std::string operator()(const CommitDesiredState& c) const {
    return fmt::format("CommitDesiredState {} {} {} {} {}", c.commit.value, c.pool_id.value, c.endpoint,
                       c.desired.draining, wire::encode(c.desired));
  }
  std::string operator()(const AnswerPoolControl& c) const {
    return fmt::format(
        "AnswerPoolControl {} {}", c.request.value,
        c.result ? fmt::format("{} {}", c.result->status, c.result->workers.size()) : text(c.result.error()));
  }
  std::string operator()(const AnswerPoolHealth& c) const {
    if (!c.health) return fmt::format("AnswerPoolHealth {} none", c.request.value);
    return fmt::format("AnswerPoolHealth {} live {} ready {} draining {} \"{}\"", c.request.value, c.health->live,
                       c.health->ready, c.health->draining, c.health->operation ? c.health->operation->step : "");
  }
  std::string operator()(const PublishMetrics& c) const {
    return fmt::format("PublishMetrics {} {}", c.job_id.value, wire::encode(c.metrics));
  }
  std::string operator()(const PublishQueued& c) const {
    return fmt::format("PublishQueued {} {} {}", c.job_id.value, c.queue_position, c.predicted_start_ms);
  }
  std::string operator()(const ReleaseStream& c) const { return fmt::format("ReleaseStream {}", c.job_id.value); }
  std::string operator()(const SealStream& c) const { return fmt::format("SealStream {}", c.job_id.value); }
  std::string operator()(const Finish& c) const {
    return fmt::format("Finish {} {} {} {} {}", c.job_id.value, text(c.status), c.finished_unix_ms, text(c.end),
                       text(c.error));
  }
  std::string operator()(const Execute& c) const {
    return fmt::format("Execute {} {} {} {} {} attempt {} timeout {} waited {}", c.execution.value, c.job_id.value,
                       c.pool_id.value, c.worker_id.value, c.uri, c.attempt, c.timeout_ms, c.queue_wait_ms);
  }
  std::string operator()(const AbortExecute& c) const {
    return fmt::format("AbortExecute {} {} {}", c.execution.value, c.job_id.value, c.uri);
  }
  std::string operator()(const StartWorker& c) const {
    return fmt::format("StartWorker {} {} {} {} {}", c.pool_id.value, c.endpoint, c.request.worker_id,
                       c.request.model_ref, c.request.gpu_id);
  }
  std::string operator()(const StopWorker& c) const {
    return fmt::format("StopWorker {} {} {}", c.pool_id.value, c.endpoint, c.worker_id.value);
  }
  std::string operator()(const StageModel& c) const {
    return fmt::format("StageModel {} {} {} {}", c.pool_id.value, c.endpoint, c.model_ref, c.stage);
  }
  std::string operator()(const AskPoolState& c) const { return fmt::format("AskPoolState {}", c.endpoint); }
  std::string operator()(const Log& c) const {
    std::string out = fmt::format("Log {} \"{}\"", c.event, c.human);
    for (const auto& f : c.fields) out += fmt::format(" {}={}", f.name, text(f.value));
    return out;
  }
  std::string operator()(const Count& c) const {
    return fmt::format("Count {} {} {} {}", static_cast<int>(c.metric), c.label, static_cast<int>(c.priority), c.value);
  }
  std::string operator()(const ReviewQueue& c) const {
    return fmt::format("ReviewQueue {} groups {} devices", c.snapshot.groups.size(), c.snapshot.devices.size());
  }
  std::string operator()(const PublishStanding& c) const {
    const auto text = [](const std::optional<base::Error>& e) { return e ? e->message : "passes"; };
    return fmt::format("PublishStanding {} {} {}", c.tenant_id,
                       c.standing.throttle ? text(c.standing.throttle->refusal(1, 0)) : "-",
                       c.standing.quota ? text(c.standing.quota->refusal(1, 0)) : "-");
  }
  std::string operator()(const PublishQueueRoom& c) const {
    std::string text = c.refusals.empty() ? "PublishQueueRoom room" : "PublishQueueRoom";
    for (const auto& [tenant, refusal] : c.refusals) {
      text += fmt::format(" '{}' {} {} {}", tenant, refusal.refuses[0], refusal.refuses[1], refusal.error.message);
    }
    return text;
  }
  std::string operator()(const CountPlacement& c) const {
    return fmt::format("CountPlacement {} pinned {} fallback {} of {}", c.assigned ? "assigned" : "no_capacity",
                       c.pinned, c.fallback, c.candidates_considered);
  }
  std::string operator()(const Drained&) const { return "Drained"; }
};

}  // namespace

std::string describe(const Command& command) { return std::visit(Describe{}, command); }

}  // namespace llorch::orchestratord::core
