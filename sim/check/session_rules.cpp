#include "sim/check/session_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "sim/check/oracle.h"

namespace llorch::sim {

using base::ErrorCode;

namespace {
constexpr std::int64_t kDayMs = 24LL * 3'600 * 1'000;
constexpr double kExact = 0.01;  // of what a bucket holds; its own sums are in millionths

std::string text_of(const base::Error& error, std::string_view key) {
  for (const auto& [name, value] : error.details) {
    const auto* text = std::get_if<std::string>(&value);
    if (name == key && text != nullptr) return *text;
  }
  return {};
}
std::int64_t number_of(const base::Error& error, std::string_view key) {
  for (const auto& [name, value] : error.details) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (name == key && number != nullptr) return *number;
  }
  return 0;
}

// What the jobs of a tenant have taken on this day and what those that live may take.
std::int64_t tokens_of_day(const Disk& disk, const std::string& tenant, std::int64_t day) {
  std::int64_t tokens = 0;
  for (const auto& [job, row] : disk.rows) {
    if (caller_of(row.request) != tenant) continue;
    const bool over = wire::is_terminal(row.status);
    if (!over) tokens += row.request.tokens_in + row.request.max_tokens;
    if (over && row.finished_unix_ms / kDayMs == day) {
      tokens += row.tokens_out + (row.attempts > 0 ? row.request.tokens_in : 0);
    }
  }
  return tokens;
}

}  // namespace

void SessionRules::life_begins(const Disk& disk) {
  ++lives_;
  sessions_.clear();
  callers_.clear();
  submission_.reset();
  for (const auto& [key, record] : disk.sessions) {
    records_.emplace(key, record);
    sessions_[key];
  }
  for (const auto& [job, row] : disk.rows) {
    if (!row.session_key) continue;
    key_of_[job] = *row.session_key;
    const auto session = sessions_.find(*row.session_key);
    if (session != sessions_.end() && !wire::is_terminal(row.status)) ++session->second.jobs_live;
  }
}

void SessionRules::heard(const core::Event& event) {
  const bool may_forget = std::holds_alternative<core::CloseSession>(event) ||
                          std::holds_alternative<core::CommitFailed>(event) ||
                          std::holds_alternative<core::Restored>(event);
  hearing_ = may_forget ? Hearing::kMayForget : Hearing::kOther;
  submission_.reset();
  if (const auto* submit = std::get_if<core::Submit>(&event)) {
    submission_ = {.job = submit->job.job_id.value,
                   .caller = oracle_.caller(submit->job.job_id.value),
                   .tokens = submit->job.tokens_in + submit->job.max_tokens,
                   .counted = submit->counted};
  } else if (const auto* arrival = std::get_if<core::CountArrival>(&event)) {
    submission_ = {.job = {}, .caller = arrival->tenant_id};
  }
}

void SessionRules::commanded(const core::Command& command, const Disk& disk) {
  std::visit([&](const auto& c) { on(c, disk); }, command);
}

// ---- sessions -------------------------------------------------------------------------------------------------------

void SessionRules::on(const core::CommitAdmission& c, const Disk&) {
  if (submission_ && submission_->job == c.job_id.value) throttled(true, true);
  if (!c.session) return;
  const std::int64_t key = c.session->key;
  records_.emplace(key, *c.session);
  key_of_[c.job_id.value] = key;
  Session& session = sessions_[key];
  session.active_ms = loop_.now_ms();
  ++session.jobs_live;
}

void SessionRules::on(const core::AnswerArrival& c, const Disk&) { throttled(!c.refusal, false); }

void SessionRules::on(const core::AnswerSubmit& c, const Disk& disk) {
  const std::string& job = c.job_id.value;
  const auto key = key_of_.find(job);
  if (c.result) {
    // Days are those of the process's wall clock; where nobody sets it, they are the loop's.
    const std::int64_t daily = options_.core.quotas.token_budget_daily, day = loop_.now().unix_ms / kDayMs;
    if (daily > 0 && options_.faults.clock_jump_ms == 0 && tokens_of_day(disk, oracle_.caller(job), day) > daily) {
      oracle_.violate("a tenant may take more than its tokens of the day: " + oracle_.caller(job));
    }
    if (key != key_of_.end()) check_budgets(key->second, disk);
    return;
  }
  if (submission_ && submission_->job == job) {  // refused before it took a place
    throttled(!text_of(c.result.error(), "policy_label").starts_with("throttle."), false);
    if (text_of(c.result.error(), "policy_label").starts_with("quotas."))
      oracle_.reached("tenant held up by its quota");
    if (c.result.error().code == ErrorCode::kBudgetExceeded) check_refusal(c.result.error());
    return;
  }
  if (key == key_of_.end()) return;
  if (const auto session = sessions_.find(key->second); session != sessions_.end()) --session->second.jobs_live;
  key_of_.erase(key);
}

void SessionRules::check_refusal(const base::Error& error) {
  if (text_of(error, "policy_label") == "quotas.token_budget_daily") {
    oracle_.reached("job larger than a tenant's day");
    if (number_of(error, "tokens_requested") <= number_of(error, "token_budget_daily")) {
      oracle_.violate("a job was refused though it fits into its tenant's day");
    }
    return;
  }
  const std::string budget = text_of(error, "budget");
  oracle_.reached(fmt::format("session had no more {}", budget));
  const std::int64_t remaining = number_of(error, "remaining");
  const bool right = budget == "turns" || budget == "time" ? remaining <= 0 : number_of(error, "requested") > remaining;
  if (!right) oracle_.violate("a session's job was refused though its budget allows it: " + error.message);
}

void SessionRules::check_budgets(std::int64_t key, const Disk& disk) {
  const auto& record = records_.at(key);
  const auto use = use_of(disk.rows, key);
  std::int64_t tokens_in = use.tokens_in, tokens_out = use.tokens_out, tokens = 0;
  for (const auto& [job, row] : disk.rows) {
    if (row.session_key != key || wire::is_terminal(row.status)) continue;
    tokens_in += row.request.tokens_in;
    tokens_out += row.request.max_tokens;
  }
  tokens = tokens_in + tokens_out;
  const std::int64_t cost = tokens_in * record.prompt_token_cost_nano + tokens_out * record.output_token_cost_nano;
  const std::string name = record.session_id.value;
  if (use.turns > options_.core.sessions.turns_max) oracle_.violate("a session has more turns than it may: " + name);
  if (record.token_budget && tokens > *record.token_budget) {
    oracle_.violate(fmt::format("{} may take {} tokens of {}", name, tokens, *record.token_budget));
  }
  if (record.cost_budget_nano && cost > *record.cost_budget_nano) {
    oracle_.violate(fmt::format("{} may cost {} of {}", name, cost, *record.cost_budget_nano));
  }
  const std::int64_t slack_ms = lives_ * use.turns;
  if (record.time_budget_ms && use.decode_time_ms > *record.time_budget_ms + slack_ms) {
    oracle_.violate(fmt::format("{} took {} ms of {}", name, use.decode_time_ms, *record.time_budget_ms));
  }
}

void SessionRules::on(const core::CommitSession& c, const Disk&) {
  records_.emplace(c.session.key, c.session);
  sessions_[c.session.key].active_ms = loop_.now_ms();
}

void SessionRules::on(const core::ForgetSession& c, const Disk&) {
  const auto session = sessions_.find(c.session_key);
  if (session == sessions_.end()) return;
  const auto& [active_ms, jobs_live, last_worker] = session->second;
  if (hearing_ == Hearing::kOther) {
    oracle_.reached("session ended by its age");
    if (jobs_live > 0) oracle_.violate("a session ends by its age under a job");
    if (active_ms && loop_.now_ms() < *active_ms + options_.core.sessions.ttl_ms) {
      oracle_.violate("a session ends before its time");
    }
  }
  sessions_.erase(session);
}

void SessionRules::on(const core::AnswerSession& c, const Disk&) {
  if (c.created) oracle_.reached("session opened");
  if (!c.result) return;
  const wire::SessionView& view = *c.result;
  if (view.token_budget && view.tokens_used + view.tokens_reserved > *view.token_budget) {
    oracle_.violate("a session says that it has overspent: " + view.session_id);
  }
}

void SessionRules::on(const core::Execute& c, const Disk& disk) {
  worker_of_[c.job_id.value] = c.worker_id.value;
  const auto key = key_of_.find(c.job_id.value);
  if (key == key_of_.end()) return;
  const auto session = sessions_.find(key->second);
  if (session == sessions_.end()) return;
  const auto& record = records_.at(key->second);
  if (record.time_budget_ms) {
    const std::int64_t left_ms = *record.time_budget_ms - use_of(disk.rows, key->second).decode_time_ms;
    if (c.timeout_ms > std::max<std::int64_t>(1, left_ms + lives_ * options_.core.sessions.turns_max)) {
      oracle_.violate(fmt::format("{} may run for {} ms, its session has {}", c.job_id.value, c.timeout_ms, left_ms));
    }
  }
  warm_[c.job_id.value] = session->second.last_worker == c.worker_id.value;
}

void SessionRules::on(const core::PublishMetrics& c, const Disk&) {
  const auto& chance = c.metrics.on_time_probability;
  if (chance && !(*chance >= 0 && *chance <= 1)) oracle_.violate("a chance is none: " + c.job_id.value);
  const auto key = key_of_.find(c.job_id.value);
  if (!c.metrics.kv_warmth) {
    if (key != key_of_.end() && sessions_.contains(key->second)) {
      oracle_.violate("a job of a session runs without it: " + c.job_id.value);
    }
    return;
  }
  const auto warm = warm_.find(c.job_id.value);
  if (warm == warm_.end()) return oracle_.violate("a job is called warm and has no session: " + c.job_id.value);
  if (*c.metrics.kv_warmth != warm->second) {
    oracle_.violate("a worker is called warm, or not, and is the other: " + worker_of_[c.job_id.value]);
  }
  if (warm->second) oracle_.reached("session went back to its worker");
}

void SessionRules::on(const core::Finish& c, const Disk&) {
  const auto key = key_of_.find(c.job_id.value);
  if (key == key_of_.end()) return;
  const auto session = sessions_.find(key->second);
  if (session == sessions_.end()) return;
  --session->second.jobs_live;
  session->second.active_ms = loop_.now_ms();
  if (c.status == wire::JobStatus::kCompleted) session->second.last_worker = worker_of_[c.job_id.value];
}

void SessionRules::check_bounds() {
  for (const auto& [key, session] : sessions_) {
    if (session.jobs_live > 0 || !session.active_ms) continue;
    const std::int64_t idle_ms = loop_.now_ms() - *session.active_ms;
    if (idle_ms > options_.core.sessions.ttl_ms + kBoundSlackMs) {
      oracle_.violate(fmt::format("{} is there {} ms after its last use", records_.at(key).session_id.value, idle_ms));
    }
  }
}

// ---- throttles ------------------------------------------------------------------------------------------------------

double SessionRules::burst(double per_second) const {
  return std::max(1.0, per_second * options_.core.throttle.burst_seconds);
}

void SessionRules::fill(Bucket& bucket, double per_second, double burst, std::int64_t now_ms) {
  bucket.level = std::min(
      burst, bucket.level + per_second * static_cast<double>(now_ms - std::exchange(bucket.filled_ms, now_ms)) / 1'000);
}

void SessionRules::throttled(bool passed, bool enqueued) {
  const auto submission = std::exchange(submission_, std::nullopt);
  const auto& throttle = options_.core.throttle;
  const std::int64_t now_ms = loop_.now_ms();
  const double requests_max = burst(throttle.requests_per_second), tokens_max = burst(throttle.tokens_per_second);
  const Caller full{.requests = {requests_max, now_ms}, .tokens = {tokens_max, now_ms}};
  Caller& caller = callers_.try_emplace(submission->caller, full).first->second;
  fill(caller.requests, throttle.requests_per_second, requests_max, now_ms);
  fill(caller.tokens, throttle.tokens_per_second, tokens_max, now_ms);
  const auto tokens = static_cast<double>(submission->tokens);
  const bool takes_request = throttle.requests_per_second > 0 && !submission->counted;
  const double missing_requests = takes_request ? 1 - caller.requests.level : -1;
  const double missing_tokens =
      throttle.tokens_per_second > 0 ? std::min(tokens, tokens_max) - caller.tokens.level : -1;
  if (passed && std::max(missing_requests, missing_tokens) > kExact) {
    oracle_.violate("a caller is faster than its throttle: " + submission->caller);
  }
  if (!passed) {
    oracle_.reached("caller held up by its throttle");
    if (std::max(missing_requests, missing_tokens) < -kExact) {
      oracle_.violate("a caller is held up by a throttle that has room: " + submission->caller);
    }
    return;
  }
  if (takes_request) caller.requests.level -= 1;
  if (enqueued && throttle.tokens_per_second > 0) caller.tokens.level -= tokens;
}

}  // namespace llorch::sim
