#include "orchestratord/core/sessions/session_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/assert.h"

namespace llorch::orchestratord::core::sessions {
namespace {

using base::Error;
using base::ErrorCode;

constexpr double kNano = 1e9;
constexpr std::int64_t kRetryAfterMinMs = 1000;

std::int64_t to_nano(double amount) { return std::llround(amount * kNano); }
double from_nano(std::int64_t nano) { return static_cast<double>(nano) / kNano; }

std::optional<std::int64_t> to_nano(const std::optional<double>& amount) {
  if (!amount) return std::nullopt;
  return to_nano(*amount);
}

// Without a cost budget nothing bounds the sum.
std::int64_t cost_nano(std::int64_t tokens_in, std::int64_t tokens_out, const SessionRecord& r) {
  std::int64_t prompt = 0, output = 0, sum = 0;
  const bool over = __builtin_mul_overflow(tokens_in, r.prompt_token_cost_nano, &prompt) ||
                    __builtin_mul_overflow(tokens_out, r.output_token_cost_nano, &output) ||
                    __builtin_add_overflow(prompt, output, &sum);
  return over ? std::numeric_limits<std::int64_t>::max() / 2 : sum;
}

std::int64_t tokens_used(const Session& s) { return s.use.tokens_in + s.use.tokens_out; }
std::int64_t cost_used(const Session& s) { return cost_nano(s.use.tokens_in, s.use.tokens_out, s.record); }

std::int64_t tokens_left(const Session& s) { return *s.record.token_budget - tokens_used(s) - s.reserved.tokens; }
std::int64_t time_left(const Session& s) {
  return *s.record.time_budget_ms - s.use.decode_time_ms - s.reserved.time_ms.value_or(0);
}
std::int64_t cost_left(const Session& s) { return *s.record.cost_budget_nano - cost_used(s) - s.reserved.cost_nano; }

struct Overrun {
  std::string_view budget, unit;
  std::int64_t limit = 0, remaining = 0, reserved = 0, requested = 0;
  std::string_view advice;
};
Error exceeded(const Session& s, const Overrun& o) {
  return Error{ErrorCode::kBudgetExceeded,
               fmt::format("The session has {} {} left of {}, besides {} that its running jobs may take; this job may "
                           "take {}. {}",
                           o.remaining, o.unit, o.limit, o.reserved, o.requested, o.advice),
               {}}
      .with("budget", std::string(o.budget))
      .with("session_id", s.record.session_id.value)
      .with("limit", o.limit)
      .with("remaining", o.remaining)
      .with("reserved", o.reserved)
      .with("requested", o.requested);
}

}  // namespace

wire::BudgetRemaining after(const Share& share, std::int64_t tokens_out, std::int64_t decode_time_ms) {
  wire::BudgetRemaining left = share.before;
  const auto take = [](std::optional<std::int64_t>& from, std::int64_t amount) {
    if (from) from = std::max<std::int64_t>(0, *from - amount);
  };
  take(left.tokens_budget_remaining, share.tokens_in + tokens_out);
  take(left.time_budget_remaining_ms, decode_time_ms);
  if (left.cost_budget_remaining) {
    const std::int64_t cost =
        share.tokens_in * share.prompt_token_cost_nano + tokens_out * share.output_token_cost_nano;
    left.cost_budget_remaining = from_nano(std::max<std::int64_t>(0, to_nano(*left.cost_budget_remaining) - cost));
  }
  return left;
}

SessionTable::SessionTable(config::SessionConfig config, std::size_t tenants_count) : config_(std::move(config)) {
  set_tenants_count(tenants_count);
}

void SessionTable::set_tenants_count(std::size_t tenants_count) {
  share_ = std::max<std::int64_t>(1, config_.count_max / (static_cast<std::int64_t>(tenants_count) + 1));
}

std::vector<std::int64_t> SessionTable::restore(std::vector<RestoredSession> sessions, base::Time now) {
  std::vector<std::int64_t> useless;
  for (RestoredSession& restored : sessions) {
    const std::int64_t idle_ms = std::max<std::int64_t>(0, now.unix_ms - restored.last_activity_unix_ms);
    const base::SessionId id = restored.session.session_id;
    // Of two with one id the earlier one was over when the later one was made.
    if (const auto older = key_of_.find(id); older != key_of_.end()) {
      useless.push_back(older->second);
      erase(older->second);
    }
    Session session{.record = std::move(restored.session), .use = restored.use, .reserved = {}, .last_worker = {}};
    session.active_ms = now.mono_ms - idle_ms;
    session.active_unix_ms = now.unix_ms - idle_ms;
    put(std::move(session));
  }
  return useless;
}

Session SessionTable::fresh(const base::SessionId& id, base::Time now) const {
  Session s;
  s.record.session_id = id;
  s.record.created_unix_ms = s.record.touched_unix_ms = s.active_unix_ms = now.unix_ms;
  s.active_ms = now.mono_ms;
  s.record.token_budget = config_.token_budget;
  s.record.time_budget_ms = config_.time_budget_ms;
  s.record.cost_budget_nano = to_nano(config_.cost_budget);
  s.record.prompt_token_cost_nano = to_nano(config_.cost_per_prompt_token);
  s.record.output_token_cost_nano = to_nano(config_.cost_per_output_token);
  return s;
}

Session& SessionTable::insert(Session session, base::Entropy& entropy) {
  do {
    session.record.key = static_cast<std::int64_t>(entropy.next_u64() >> 1);
  } while (sessions_.contains(session.record.key));
  return put(std::move(session));
}

Session& SessionTable::put(Session session) {
  const std::int64_t key = session.record.key;
  ++count_of_.try_emplace(std::string(tenant_of(session.record.session_id))).first->second;
  const bool is_new = key_of_.emplace(session.record.session_id, key).second;
  ASSERT(is_new, "session {} is there", session.record.session_id.value);
  Session& kept = sessions_.emplace(key, std::move(session)).first->second;
  set_ageing(kept, true);
  return kept;
}

bool SessionTable::erase(std::int64_t key) {
  const auto it = sessions_.find(key);
  if (it == sessions_.end()) return false;
  set_ageing(it->second, false);
  const base::SessionId& id = it->second.record.session_id;
  if (const auto count = count_of_.find(tenant_of(id)); --count->second == 0) count_of_.erase(count);
  key_of_.erase(id);
  sessions_.erase(it);
  return true;
}

base::Result<SessionTable::Opened> SessionTable::open(const wire::CreateSessionRequest& request, base::Time now,
                                                      base::Entropy& entropy) {
  const base::SessionId id(request.session_id ? *request.session_id : base::uuid_v4(entropy));
  if (const auto it = key_of_.find(id); it != key_of_.end()) {
    Session& session = sessions_.at(it->second);
    const auto differs = [](const auto& asked, const auto& has) { return asked && asked != has; };
    if (differs(request.token_budget, session.record.token_budget) ||
        differs(request.time_budget_ms, session.record.time_budget_ms) ||
        differs(to_nano(request.cost_budget), session.record.cost_budget_nano)) {
      return base::fail(Error{
          ErrorCode::kConflict,
          "This session has other budgets. A budget does not change; use a new session id, or "
          "delete the session first.",
          {}}.with("session_id", id.value));
    }
    used_now(session, now);
    session.record.touched_unix_ms = std::max(session.record.touched_unix_ms, now.unix_ms);
    return Opened{.key = it->second, .created = false};
  }
  if (auto error = over_share(id, now.mono_ms)) return base::fail(std::move(*error));
  Session session = fresh(id, now);
  if (request.token_budget) session.record.token_budget = request.token_budget;
  if (request.time_budget_ms) session.record.time_budget_ms = request.time_budget_ms;
  if (request.cost_budget) session.record.cost_budget_nano = to_nano(request.cost_budget);
  return Opened{.key = insert(std::move(session), entropy).record.key, .created = true};
}

// Of sessions without live jobs, which alone end by themselves.
std::int64_t SessionTable::next_expiry_ms(std::string_view tenant) const {
  constexpr int kLooksMax = 64;  // what is not found then expires later than what was looked at
  int looks = 0;
  std::int64_t expiry_ms = std::numeric_limits<std::int64_t>::max();
  for (const auto& [active_ms, key] : ageing_) {
    expiry_ms = active_ms + config_.ttl_ms;
    if (tenant_of(sessions_.at(key).record.session_id) == tenant || ++looks == kLooksMax) break;
  }
  return expiry_ms;
}

std::optional<Error> SessionTable::over_share(const base::SessionId& id, std::int64_t now_ms) const {
  const auto count = count_of_.find(tenant_of(id));
  if (count == count_of_.end() || count->second < share_) return std::nullopt;
  const std::int64_t expiry_ms = next_expiry_ms(tenant_of(id));
  const std::int64_t retry_ms =
      ageing_.empty() ? config_.ttl_ms : std::clamp(expiry_ms - now_ms, kRetryAfterMinMs, config_.ttl_ms);
  return Error{ErrorCode::kQuotaExceeded,
               fmt::format("{} sessions are open, the caller's share of the {} of sessions.count_max. Delete one, or "
                           "try again in {} ms.",
                           count->second, config_.count_max, retry_ms),
               {}}
      .with("policy_label", std::string("quota.sessions"))
      .with("retry_after_ms", retry_ms)
      .with("limit", share_);
}

Reservation SessionTable::reservation_of(const Session& s, const Demand& d) {
  Reservation r{.tokens = d.tokens_in + d.max_tokens, .time_ms = {}, .cost_nano = 0};
  if (s.record.time_budget_ms) r.time_ms = std::min(d.timeout_ms, time_left(s));
  if (s.record.cost_budget_nano) r.cost_nano = cost_nano(d.tokens_in, d.max_tokens, s.record);
  return r;
}

std::optional<Error> SessionTable::refusal(const base::SessionId& id, const Demand& demand, base::Time now) const {
  const Session* known = find(id);
  if (!known) {
    if (auto error = over_share(id, now.mono_ms)) return error;
  }
  const Session session = known ? *known : fresh(id, now);
  const Reservation wanted = reservation_of(session, demand);
  if (session.use.turns >= config_.turns_max) {
    return Error{
        ErrorCode::kBudgetExceeded,
        fmt::format("The session has had its {} turns (sessions.turns_max). Use another session.", config_.turns_max),
        {}}
        .with("budget", std::string("turns"))
        .with("session_id", id.value)
        .with("limit", config_.turns_max)
        .with("remaining", std::int64_t{0});
  }
  if (session.record.token_budget && wanted.tokens > tokens_left(session)) {
    return exceeded(session, {.budget = "tokens",
                              .unit = "tokens",
                              .limit = *session.record.token_budget,
                              .remaining = tokens_left(session),
                              .reserved = session.reserved.tokens,
                              .requested = wanted.tokens,
                              .advice = "Lower max_tokens, shorten the prompt, or use another session."});
  }
  if (session.record.time_budget_ms && time_left(session) <= 0) {
    return exceeded(session, {.budget = "time",
                              .unit = "ms of decode time",
                              .limit = *session.record.time_budget_ms,
                              .remaining = time_left(session),
                              .reserved = session.reserved.time_ms.value_or(0),
                              .requested = demand.timeout_ms,
                              .advice = "Wait for its running jobs, give them a timeout_ms, or use another session."});
  }
  if (session.record.cost_budget_nano && wanted.cost_nano > cost_left(session)) {
    return exceeded(session, {.budget = "cost",
                              .unit = "billionths of the cost unit",
                              .limit = *session.record.cost_budget_nano,
                              .remaining = cost_left(session),
                              .reserved = session.reserved.cost_nano,
                              .requested = wanted.cost_nano,
                              .advice = "Lower max_tokens, shorten the prompt, or use another session."});
  }
  return std::nullopt;
}

void SessionTable::reserve(Session& s, const Reservation& r, int sign) {
  s.reserved.tokens += sign * r.tokens;
  s.reserved.cost_nano += sign * r.cost_nano;
  if (r.time_ms) s.reserved.time_ms = s.reserved.time_ms.value_or(0) + sign * *r.time_ms;
  s.jobs_live += sign;
}

SessionTable::Admitted SessionTable::admit(const base::SessionId& id, const Demand& demand, base::Time now,
                                           base::Entropy& entropy) {
  const auto it = key_of_.find(id);
  Session& session = it == key_of_.end() ? insert(fresh(id, now), entropy) : sessions_.at(it->second);
  const Reservation reservation = reservation_of(session, demand);
  used_now(session, now);
  set_ageing(session, false);
  ++session.use.turns;
  reserve(session, reservation, +1);
  return {.key = session.record.key, .reservation = reservation};
}

void SessionTable::withdraw(const Admitted& admitted) {
  Session* session = find_mutable(admitted.key);
  if (!session) return;
  --session->use.turns;
  reserve(*session, admitted.reservation, -1);
  set_ageing(*session, session->jobs_live == 0);
}

std::optional<SessionTable::Admitted> SessionTable::readmit(std::int64_t key, const Demand& demand) {
  Session* session = find_mutable(key);
  if (!session) return std::nullopt;
  Reservation reservation = reservation_of(*session, demand);
  // It was accepted: it runs, though another job of the session may have been given the time that was its own.
  if (reservation.time_ms) reservation.time_ms = std::max<std::int64_t>(1, *reservation.time_ms);
  set_ageing(*session, false);
  reserve(*session, reservation, +1);
  return Admitted{.key = key, .reservation = reservation};
}

void SessionTable::settle(const Admitted& admitted, const Charge& charge, base::Time now) {
  Session* session = find_mutable(admitted.key);
  if (!session) return;
  reserve(*session, admitted.reservation, -1);
  session->use.tokens_in += charge.tokens_in;
  session->use.tokens_out += charge.tokens_out;
  session->use.decode_time_ms += charge.decode_time_ms;
  used_now(*session, now);
  set_ageing(*session, session->jobs_live == 0);
}

void SessionTable::used_now(Session& session, base::Time now) {
  set_ageing(session, false);
  session.active_ms = now.mono_ms;
  session.active_unix_ms = now.unix_ms;
  set_ageing(session, session.jobs_live == 0);
}

void SessionTable::set_ageing(const Session& session, bool ageing) {
  const std::pair entry(session.active_ms, session.record.key);
  if (ageing) {
    ageing_.insert(entry);
  } else {
    ageing_.erase(entry);
  }
}

const Session* SessionTable::find(const base::SessionId& id) const {
  const auto it = key_of_.find(id);
  return it == key_of_.end() ? nullptr : &sessions_.at(it->second);
}

const Session* SessionTable::find(std::int64_t key) const {
  const auto it = sessions_.find(key);
  return it == sessions_.end() ? nullptr : &it->second;
}

Session* SessionTable::find_mutable(std::int64_t key) {
  const auto it = sessions_.find(key);
  return it == sessions_.end() ? nullptr : &it->second;
}

void SessionTable::ended_well_on(std::int64_t key, base::PoolId pool_id, base::WorkerId worker_id) {
  if (Session* session = find_mutable(key)) session->last_worker = {std::move(pool_id), std::move(worker_id)};
}

wire::BudgetRemaining SessionTable::remaining(const Session& s) const {
  wire::BudgetRemaining left;
  if (s.record.token_budget) left.tokens_budget_remaining = std::max<std::int64_t>(0, tokens_left(s));
  if (s.record.time_budget_ms) left.time_budget_remaining_ms = std::max<std::int64_t>(0, time_left(s));
  if (s.record.cost_budget_nano) left.cost_budget_remaining = from_nano(std::max<std::int64_t>(0, cost_left(s)));
  return left;
}

std::optional<Share> SessionTable::share(const Admitted& admitted, std::int64_t tokens_in, bool kv_warmth) const {
  const Session* session = find(admitted.key);
  if (!session) return std::nullopt;
  Session without = *session;
  reserve(without, admitted.reservation, -1);
  return Share{.before = remaining(without),
               .tokens_in = tokens_in,
               .prompt_token_cost_nano = session->record.prompt_token_cost_nano,
               .output_token_cost_nano = session->record.output_token_cost_nano,
               .kv_warmth = kv_warmth};
}

wire::SessionView SessionTable::view(const Session& s, base::Time now) const {
  wire::SessionView v;
  v.session_id = s.record.session_id.value;
  v.created_at = base::rfc3339(s.record.created_unix_ms);
  v.last_activity = base::rfc3339(s.active_unix_ms);
  v.ttl_ms_remaining =
      s.jobs_live > 0 ? config_.ttl_ms : std::max<std::int64_t>(0, s.active_ms + config_.ttl_ms - now.mono_ms);
  v.turns = v.jobs_total = s.use.turns;
  v.turns_max = config_.turns_max;
  v.jobs_live = s.jobs_live;
  v.token_budget = s.record.token_budget;
  v.tokens_used = tokens_used(s);
  v.tokens_reserved = s.reserved.tokens;
  v.time_budget_ms = s.record.time_budget_ms;
  v.time_used_ms = s.use.decode_time_ms;
  if (s.record.cost_budget_nano) v.cost_budget = from_nano(*s.record.cost_budget_nano);
  v.cost_used = from_nano(cost_used(s));
  v.remaining = remaining(s);
  v.tokens_remaining = v.remaining.tokens_budget_remaining;
  return v;
}

std::int64_t SessionTable::next_expiry_ms() const {
  return ageing_.empty() ? std::numeric_limits<std::int64_t>::max() : ageing_.begin()->first + config_.ttl_ms;
}

std::vector<std::int64_t> SessionTable::expire(std::int64_t now_ms) {
  std::vector<std::int64_t> expired;
  while (next_expiry_ms() <= now_ms) {
    expired.push_back(ageing_.begin()->second);
    erase(expired.back());
  }
  return expired;
}

}  // namespace llorch::orchestratord::core::sessions
