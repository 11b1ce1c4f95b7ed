// Sessions: made and ended by clients, used and charged by jobs, ended by age. Quotas and throttles with them.
#include <algorithm>
#include <map>
#include <set>

#include "base/assert.h"
#include "orchestratord/core/sessions/ledger.h"

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

sessions::Demand Ledger::demand(const jobs::JobSpec& spec) const {
  return {.tokens_in = spec.tokens_in,
          .max_tokens = spec.max_tokens,
          .timeout_ms = std::min(spec.timeout_ms.value_or(config_.timeout.default_ms), config_.timeout.max_ms)};
}

wire::SessionView Ledger::view(const sessions::Session& session) const {
  wire::SessionView view = sessions_.view(session, now_);
  const Worker* worker = session.last_worker ? registry_.find_worker(session.last_worker->second) : nullptr;
  view.kv_warmth = worker && worker->takes_work();
  if (view.kv_warmth) view.worker_id = worker->id.value;
  return view;
}

void Ledger::on(OpenSession& e) {
  if (env_.draining()) return emit(AnswerSession{.request = e.request, .result = base::fail(stopping_error())});
  auto opened = sessions_.open(e.session, now_, entropy_);
  if (!opened) return emit(AnswerSession{.request = e.request, .result = base::fail(std::move(opened).error())});
  const CommitId id = commits_.add(
      {.kind = PendingCommit::Kind::kSession, .job = {}, .session = {e.request, opened->key, opened->created}});
  emit(CommitSession{id, sessions_.find(opened->key)->record});
}

void Ledger::session_committed(const PendingSession& pending) {
  const sessions::Session* session = sessions_.find(pending.key);
  if (!session) {  // deleted meanwhile
    return emit(AnswerSession{
        .request = pending.request,
        .result = base::fail(Error{ErrorCode::kNotFound, "The session was deleted while it was made.", {}})});
  }
  emit(AnswerSession{.request = pending.request, .result = view(*session), .created = pending.created});
}

void Ledger::session_commit_failed(const PendingSession& pending) {
  // One that jobs use by now has its row from them.
  const sessions::Session* session = sessions_.find(pending.key);
  if (session && pending.created && session->use.turns == 0) end_session(pending.key);
  emit(AnswerSession{.request = pending.request, .result = base::fail(store_error("the session was not kept"))});
}

void Ledger::on(QuerySession& e) {
  const sessions::Session* session = sessions_.find(e.session_id);
  if (!session) return emit(AnswerSession{.request = e.request, .result = base::fail(no_session(e.session_id))});
  emit(AnswerSession{.request = e.request, .result = view(*session)});
}

void Ledger::on(QuerySessions& e) {
  AnswerQuerySessions answer{.request = e.request, .sessions = {}};
  for (const auto& [key, session] : sessions_.all()) {
    if (session.record.session_id.value.starts_with(e.prefix)) answer.sessions.push_back(view(session));
  }
  std::sort(answer.sessions.begin(), answer.sessions.end(),
            [](const auto& a, const auto& b) { return a.session_id < b.session_id; });
  emit(std::move(answer));
}

void Ledger::on(CloseSession& e) {
  const sessions::Session* session = sessions_.find(e.session_id);
  if (!session) return emit(AnswerSession{.request = e.request, .result = base::fail(no_session(e.session_id))});
  AnswerSession answer{.request = e.request, .result = view(*session)};
  log(base::LogLevel::kDebug, "session.deleted", "A client ends a session.",
      {{"session_id", e.session_id}, {"jobs_live", session->jobs_live}});
  end_session(session->record.key);
  emit(std::move(answer));
}

void Ledger::end_session(std::int64_t key) {
  sessions_.close(key);
  emit(ForgetSession{key});
}

void Ledger::expire_sessions() {
  for (const std::int64_t key : sessions_.expire(now_.mono_ms)) emit(ForgetSession{key});
}

void Ledger::restore(std::vector<sessions::RestoredSession> sessions, const std::vector<sessions::TenantUse>& tenants) {
  for (const std::int64_t key : sessions_.restore(std::move(sessions), now_)) emit(ForgetSession{key});
  quotas_.restore(tenants, now_.unix_ms);
}

void Ledger::set_limits(const SetLimits& limits) {
  sessions_.set_tenants_count(limits.tenants.size());
  throttle_.set_limits(limits.throttle, limits.tenants, now_.mono_ms);
  quotas_.set_limits(limits.quotas, limits.tenants, limits.former_tenants);
  std::set<std::string> accounts;
  throttle_.add_accounts(accounts);
  quotas_.add_accounts(accounts);
  // Also who has no limit any more: a copy of the one that was would refuse.
  for (const std::string& account : accounts) {
    emit(PublishStanding{account, {throttle_.standing(account), quotas_.standing(account)}});
  }
}

void Ledger::publish_standing(const std::string& tenant_id) const {
  sessions::Standing standing{throttle_.standing(tenant_id), quotas_.standing(tenant_id)};
  if (standing.throttle || standing.quota) emit(PublishStanding{tenant_id, std::move(standing)});
}

void Ledger::on(CountArrival& e) {
  emit(AnswerArrival{e.request, throttle_.arrives(e.tenant_id, 0, now_.mono_ms)});
  publish_standing(e.tenant_id);
}

std::optional<Error> Ledger::arrives(const Submit& e) {
  return throttle_.arrives(e.job.tenant_id, tokens_most(e.job), now_.mono_ms, e.counted);
}

std::optional<Error> Ledger::refusal(const jobs::JobSpec& spec) const {
  if (spec.charged) return std::nullopt;
  if (spec.session_id) {
    if (auto error = sessions_.refusal(*spec.session_id, demand(spec), now_)) return error;
  }
  return quotas_.refusal(spec.tenant_id, tokens_most(spec), now_.unix_ms);
}

void Ledger::reserve(Job& job) {
  throttle_.accepted(job.spec.tenant_id, tokens_most(job.spec), now_.mono_ms);
  quotas_.reserve(job.spec.tenant_id, tokens_most(job.spec));
  publish_standing(job.spec.tenant_id);
  if (job.spec.session_id && !job.spec.charged) {
    job.session = sessions_.admit(*job.spec.session_id, demand(job.spec), now_, entropy_);
  }
}

void Ledger::reserve_again(Job& job, std::optional<std::int64_t> session_key) {
  quotas_.reserve(job.spec.tenant_id, tokens_most(job.spec));
  publish_standing(job.spec.tenant_id);
  if (session_key) job.session = sessions_.readmit(*session_key, demand(job.spec));
}

void Ledger::withdraw(const Job& job) {
  if (job.session) sessions_.withdraw(*job.session);
  quotas_.withdraw(job.spec.tenant_id, tokens_most(job.spec));
  publish_standing(job.spec.tenant_id);
}

void Ledger::settle(const Job& job) {
  const std::int64_t prompt = job.attempts > 0 ? jobs::prompt_tokens(job.spec, job.outcome->end) : 0;
  const std::int64_t answer = std::min(job.tokens_out, job.spec.max_tokens);
  if (job.session) {
    sessions_.settle(*job.session, {.tokens_in = prompt, .tokens_out = answer, .decode_time_ms = job.decode_time_ms},
                     now_);
    if (job.status == JobStatus::kCompleted && job.pool_id && job.worker_id) {
      sessions_.ended_well_on(job.session->key, *job.pool_id, *job.worker_id);
    }
  }
  quotas_.settle(job.spec.tenant_id, {.reserved = tokens_most(job.spec),
                                      .used = job.spec.charged ? 0 : prompt + answer,
                                      .ended_unix_ms = *job.finished_unix_ms});
  publish_standing(job.spec.tenant_id);
}

std::int64_t Ledger::time_taken_ms(const Job& job, const Outcome& outcome) const {
  const bool on_worker = job.status == JobStatus::kDispatched || job.status == JobStatus::kRunning;
  std::int64_t time_ms = on_worker ? now_.mono_ms - job.dispatched_ms : 0;
  if (outcome.end) time_ms = outcome.end->decode_time_ms;
  if (job.session && job.session->reservation.time_ms) time_ms = std::min(time_ms, *job.session->reservation.time_ms);
  return time_ms;
}

Ledger::RunLimit Ledger::run_limit(const Job& job) const {
  const std::int64_t timeout_ms = demand(job.spec).timeout_ms;
  const auto session_ms = job.session ? job.session->reservation.time_ms : std::nullopt;
  if (session_ms && *session_ms < timeout_ms) return {.timeout_ms = *session_ms, .is_session = true};
  return {.timeout_ms = timeout_ms};
}

const sessions::Session* Ledger::session_of(const Job& job) const {
  return job.session ? sessions_.find(job.session->key) : nullptr;
}

wire::BudgetRemaining Ledger::remaining(const Job& job) const {
  const sessions::Session* session = session_of(job);
  return session ? sessions_.remaining(*session) : wire::BudgetRemaining{};
}

std::optional<sessions::Share> Ledger::share(const Job& job, const base::WorkerId& worker_id) const {
  if (!job.session) return std::nullopt;
  const sessions::Session* session = session_of(job);
  const bool warm = session && session->last_worker && session->last_worker->second == worker_id;
  return sessions_.share(*job.session, job.spec.tokens_in, warm);
}

void Ledger::verify(const Jobs& jobs) const {
  std::map<std::int64_t, sessions::Reservation> reserved;
  std::map<std::int64_t, std::int64_t> live;
  for (const auto& [arrival, job] : jobs.all()) {
    if (!job.session) continue;
    reserved[job.session->key].tokens += job.session->reservation.tokens;
    reserved[job.session->key].cost_nano += job.session->reservation.cost_nano;
    ++live[job.session->key];
  }
  for (const auto& [key, s] : sessions_.all()) {
    ASSERT(s.reserved.tokens == reserved[key].tokens && s.reserved.cost_nano == reserved[key].cost_nano,
           "session {}: {} tokens reserved, its jobs have {}", s.record.session_id.value, s.reserved.tokens,
           reserved[key].tokens);
    ASSERT(s.jobs_live == live[key], "session {}: {} jobs, {} say so", s.record.session_id.value, s.jobs_live,
           live[key]);
    const std::int64_t spoken_for = s.use.tokens_in + s.use.tokens_out + s.reserved.tokens;
    ASSERT(!s.record.token_budget || spoken_for <= *s.record.token_budget, "session {}: {} of {} tokens",
           s.record.session_id.value, spoken_for, *s.record.token_budget);
  }

  std::map<std::string, std::pair<std::int64_t, std::int64_t>> tenants;  // running, reserved
  for (const auto& [arrival, job] : jobs.all()) tenants[job.spec.tenant_id].second += tokens_most(job.spec);
  for (const Execution& x : jobs.executions()) ++tenants[x.tenant_id].first;
  for (const auto& [id, sums] : tenants) {
    ASSERT(quotas_.running(id) == sums.first && quotas_.reserved(id) == sums.second,
           "tenant {}: {} running, {} say so; {} tokens reserved, its jobs have {}", id, quotas_.running(id),
           sums.first, quotas_.reserved(id), sums.second);
    const std::int64_t limit = quotas_.running_max(id);
    ASSERT(limit == 0 || sums.first <= limit, "tenant {} runs {} of {}", id, sums.first, limit);
  }
}

}  // namespace llorch::orchestratord::core
