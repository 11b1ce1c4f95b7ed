#pragma once
// Wire types of /v2/sessions. A session holds numbers only: no prompt, message or output. Field tables: session.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llorch::wire {

enum class ContextMode : std::uint8_t { kStateless = 0 };  // every request brings its whole context

// What is left of a session's budgets, for the next job; absent: no such budget. Also in the 202, in `metrics` and `end`.
struct BudgetRemaining {
  std::optional<std::int64_t> tokens_budget_remaining;
  std::optional<std::int64_t> time_budget_remaining_ms;
  std::optional<double> cost_budget_remaining;

  bool operator==(const BudgetRemaining&) const = default;
};

// POST /v2/sessions. A budget that is left out is the configured one.
struct CreateSessionRequest {
  std::optional<std::string> session_id;  // omitted: one is drawn
  std::optional<std::int64_t> token_budget;
  std::optional<std::int64_t> time_budget_ms;
  std::optional<double> cost_budget;
  ContextMode context_mode = ContextMode::kStateless;
};

// GET /v2/sessions/{id}; also the answer of POST. What is left stands twice, as `*_remaining` and as `remaining`.
struct SessionView {
  std::string session_id;
  ContextMode context_mode = ContextMode::kStateless;
  std::string created_at;
  std::string last_activity;
  std::int64_t ttl_ms_remaining = 0;
  std::int64_t turns = 0;
  std::int64_t turns_max = 0;
  std::int64_t jobs_total = 0;
  std::int64_t jobs_live = 0;  // accepted and not ended
  std::optional<std::int64_t> token_budget;
  std::int64_t tokens_used = 0;
  std::int64_t tokens_reserved = 0;  // by live jobs
  std::optional<std::int64_t> tokens_remaining;
  std::optional<std::int64_t> time_budget_ms;
  std::int64_t time_used_ms = 0;
  std::optional<double> cost_budget;
  double cost_used = 0;
  BudgetRemaining remaining;
  bool kv_warmth = false;                // its last job ended on a worker that still runs and may hold its prefix
  std::optional<std::string> worker_id;  // that worker
};
struct SessionList {
  std::vector<SessionView> sessions;
};

// 200 of DELETE /v2/sessions/{id}
struct SessionDeleted {
  std::string session_id;
  bool deleted = true;
};

}  // namespace llorch::wire
