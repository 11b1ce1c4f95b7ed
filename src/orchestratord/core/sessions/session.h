#pragma once
// What a session is to the rest of orchestratord, and what of it is durable. Numbers and ids only; costs are counted in
// billionths so that sums are exact.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"

namespace llorch::orchestratord::core::sessions {

// The row of a session. Immutable but for `touched_unix_ms`.
struct SessionRecord {
  std::int64_t key = 0;  // drawn at random: an id may be used again after its session has ended
  base::SessionId session_id;
  std::int64_t created_unix_ms = 0;
  std::int64_t touched_unix_ms = 0;  // the last use that left no job
  std::optional<std::int64_t> token_budget;
  std::optional<std::int64_t> time_budget_ms;
  std::optional<std::int64_t> cost_budget_nano;
  std::int64_t prompt_token_cost_nano = 0;
  std::int64_t output_token_cost_nano = 0;
};

// An id that is a tenant's stands behind the tenant's name and this, which no identifier holds (http/tenancy.h).
inline constexpr char kTenantSeparator = ':';
// Whose session this is. Empty: the operator's.
inline std::string_view tenant_of(const base::SessionId& id) {
  const std::size_t end = id.value.find(kTenantSeparator);
  return end == std::string::npos ? std::string_view() : std::string_view(id.value).substr(0, end);
}

// What its jobs have used: all of them count as turns, those that ended with what they took. A job that never reached a
// worker took nothing; the prompt of one that did counts once, however often it was run.
struct Use {
  std::int64_t turns = 0;
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;
  std::int64_t decode_time_ms = 0;
};

// What the jobs of a tenant that ended on one day have used: prompts of those that reached a worker, and answers.
struct TenantUse {
  std::string tenant_id;
  std::int64_t tokens = 0;
};

struct RestoredSession {
  SessionRecord session;
  Use use;
  std::int64_t last_activity_unix_ms = 0;  // made, touched, or a job of it accepted or ended
};

}  // namespace llorch::orchestratord::core::sessions
