// Sessions: made and ended by clients, used and charged by jobs, ended by age.
#include <algorithm>

#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;

namespace {
Error no_session(const base::SessionId& id) {
  return Error{ErrorCode::kNotFound,
               "No session has this id: it never was, it was deleted, or nobody used it for sessions.ttl_ms.",
               {}}
      .with("session_id", id.value);
}
}  // namespace

sessions::Demand Core::State::demand(const jobs::JobSpec& spec) const {
  return {.tokens_in = spec.tokens_in,
          .max_tokens = spec.max_tokens,
          .timeout_ms = std::min(spec.timeout_ms.value_or(config.timeout.default_ms), config.timeout.max_ms)};
}

wire::SessionView Core::State::session_view(const sessions::Session& session) const {
  wire::SessionView view = sessions.view(session, now);
  const Worker* worker = session.last_worker ? registry.find_worker(session.last_worker->second) : nullptr;
  view.kv_warmth = worker && worker->takes_work();
  if (view.kv_warmth) view.worker_id = worker->id.value;
  return view;
}

void Core::State::on(OpenSession& e) {
  if (draining) return emit(AnswerSession{.request = e.request, .result = base::fail(stopping_error())});
  auto opened = sessions.open(e.session, now, entropy);
  if (!opened) return emit(AnswerSession{.request = e.request, .result = base::fail(std::move(opened).error())});
  const CommitId id = next_commit(PendingCommit::Kind::kSession, {});
  commits.at(id).session = PendingSession{e.request, opened->key, opened->created};
  emit(CommitSession{id, sessions.find(opened->key)->record});
}

void Core::State::session_committed(const PendingSession& pending) {
  const sessions::Session* session = sessions.find(pending.key);
  if (!session) {  // deleted meanwhile
    return emit(AnswerSession{
        .request = pending.request,
        .result = base::fail(Error{ErrorCode::kNotFound, "The session was deleted while it was made.", {}})});
  }
  emit(AnswerSession{.request = pending.request, .result = session_view(*session), .created = pending.created});
}

void Core::State::session_commit_failed(const PendingSession& pending) {
  // One that jobs use by now has its row from them.
  const sessions::Session* session = sessions.find(pending.key);
  if (session && pending.created && session->use.turns == 0) end_session(pending.key);
  emit(AnswerSession{.request = pending.request, .result = base::fail(store_error("the session was not kept"))});
}

void Core::State::on(QuerySession& e) {
  const sessions::Session* session = sessions.find(e.session_id);
  if (!session) return emit(AnswerSession{.request = e.request, .result = base::fail(no_session(e.session_id))});
  emit(AnswerSession{.request = e.request, .result = session_view(*session)});
}

void Core::State::on(QuerySessions& e) {
  AnswerQuerySessions answer{.request = e.request, .sessions = {}};
  for (const auto& [key, session] : sessions.all()) answer.sessions.push_back(session_view(session));
  std::sort(answer.sessions.begin(), answer.sessions.end(),
            [](const auto& a, const auto& b) { return a.session_id < b.session_id; });
  emit(std::move(answer));
}

void Core::State::on(CloseSession& e) {
  const sessions::Session* session = sessions.find(e.session_id);
  if (!session) return emit(AnswerSession{.request = e.request, .result = base::fail(no_session(e.session_id))});
  AnswerSession answer{.request = e.request, .result = session_view(*session)};
  emit(Log{base::LogLevel::kDebug,
           "session.deleted",
           {},
           "A client ends a session.",
           {{"session_id", e.session_id}, {"jobs_live", session->jobs_live}}});
  end_session(session->record.key);
  emit(std::move(answer));
}

void Core::State::end_session(std::int64_t key) {
  sessions.close(key);
  emit(ForgetSession{key});
}

void Core::State::expire_sessions() {
  for (const std::int64_t key : sessions.expire(now.mono_ms)) emit(ForgetSession{key});
}

// What the shell knows better: what the stream of a job that is about to end holds.
void Core::State::on(StreamCounted& e) {
  if (Job* job = find_job(e.job_id)) job->tokens_out = e.tokens_out;
}

// Decode time a job is charged: what its worker measured, else how long the attempt ran that was cut off.
std::int64_t Core::State::time_taken_ms(const Job& job, const Ending& ending) const {
  const bool on_worker = job.status == JobStatus::kDispatched || job.status == JobStatus::kRunning;
  std::int64_t time_ms = on_worker ? now.mono_ms - job.dispatched_ms : 0;
  if (ending.end) time_ms = ending.end->decode_time_ms;
  if (job.session && job.session->reservation.time_ms) time_ms = std::min(time_ms, *job.session->reservation.time_ms);
  return time_ms;
}

void Core::State::settle_session(const Job& job) {
  if (!job.session) return;
  sessions.settle(*job.session,
                  {.tokens_in = job.attempts > 0 ? job.spec.tokens_in : 0,
                   .tokens_out = std::min(job.tokens_out, job.spec.max_tokens),
                   .decode_time_ms = job.decode_time_ms},
                  now);
  if (job.status == JobStatus::kCompleted && job.pool_id && job.worker_id) {
    sessions.ended_well_on(job.session->key, *job.pool_id, *job.worker_id);
  }
}

void Core::State::settle_quota(const Job& job) {
  const std::int64_t prompt = job.attempts > 0 ? job.spec.tokens_in : 0;
  quotas.settle(job.spec.tenant_id, {.reserved = tokens_most(job.spec),
                                     .used = prompt + std::min(job.tokens_out, job.spec.max_tokens),
                                     .ended_unix_ms = *job.finished_unix_ms});
  publish_standing(job.spec.tenant_id);
}

std::optional<sessions::Share> Core::State::session_share(const Job& job, const base::WorkerId& worker_id) const {
  if (!job.session) return std::nullopt;
  const sessions::Session* session = sessions.find(job.session->key);
  const bool warm = session && session->last_worker && session->last_worker->second == worker_id;
  return sessions.share(*job.session, job.spec.tokens_in, warm);
}

}  // namespace llorch::orchestratord::core
