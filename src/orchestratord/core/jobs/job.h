#pragma once
// What a job is to the core: numbers and ids. Prompt, tokens, stop strings and sampling parameters stay in the shell.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/id.h"
#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::orchestratord::core::jobs {

// What admission hands over. Immutable afterwards and rebuilt from the store after a restart.
struct JobSpec {
  base::JobId job_id;  // drawn by the shell, unguessable
  base::CorrelationId correlation_id;
  wire::ModelFacts model;  // digest, context_length and memory_bytes are read here, model_ref goes to the pool
  wire::Priority priority = wire::Priority::kInteractive;
  std::int64_t tokens_in = 0;
  std::int64_t max_tokens = 0;
  std::optional<std::int64_t> timeout_ms;
  std::optional<std::int64_t> deadline_ms;
  wire::Placement placement;
  std::optional<base::SessionId> session_id;
  std::string tenant_id{};  // whose quota and throttle count it: a name of the token, never the token
  bool charged = false;     // it stands for one that was: neither quota nor session refuses it or counts its tokens
};

// Prompt tokens to charge for a run that ended with `end`. Of a model that takes text `spec.tokens_in` is a bound, its bytes, and what
// its engine counted takes its place, at most that much; a run without an end, and an engine that does not count, leave the bound.
inline std::int64_t prompt_tokens(const JobSpec& spec, const std::optional<wire::EndEvent>& end) {
  const bool counted = spec.model.takes == wire::PromptForm::kText && end && end->tokens_in > 0;
  return counted ? std::min(end->tokens_in, spec.tokens_in) : spec.tokens_in;
}

// Positions that prompt and answer of a job share. `worker_context_tokens`: of the configuration; absent: the model's own.
inline std::int64_t context_tokens(const wire::ModelFacts& model,
                                   const std::optional<std::int64_t>& worker_context_tokens) {
  return std::min(model.context_length, worker_context_tokens.value_or(model.context_length));
}

// Chance that a job's answer ends within `left_ms`, if it is as likely to end after any of the next `tokens_left` tokens. In [0, 1].
double on_time_probability(std::int64_t tokens_left, double ms_per_token, std::int64_t left_ms);

// A job of the store that has no terminal row yet.
struct RestoredJob {
  JobSpec spec;
  wire::JobStatus status = wire::JobStatus::kQueued;  // REQUIRES: not terminal
  std::int64_t attempts = 0;
  std::int64_t submitted_unix_ms = 0;
  std::optional<std::int64_t> session_key;  // with spec.session_id: of which session of that id
  bool payload_available = true;            // false: the job ends in PAYLOAD_LOST
  std::string worker_version{};             // of the worker that last began it
  bool readable = true;                     // false: what the store has of it cannot be read; it ends likewise
};

enum class CancelReason : std::uint8_t { kClientRequest, kDisconnect, kTimeout, kAdmin, kStreamMemory };
std::string_view name(CancelReason reason);  // "client_request", ...

// One row update. Absent optionals leave their column as it is.
struct JobRecord {
  base::JobId job_id;
  wire::JobStatus status = wire::JobStatus::kQueued;
  std::int64_t attempts = 0;
  std::optional<base::WorkerId> worker_id;
  std::optional<std::string> worker_version;
  std::optional<base::PoolId> pool_id;
  std::optional<std::int64_t> dispatched_unix_ms;
  std::optional<std::int64_t> started_unix_ms;
  std::optional<std::int64_t> finished_unix_ms;
  std::optional<std::int64_t> tokens_in;  // of an outcome, where the engine's count takes the place of a bound
  std::optional<std::int64_t> tokens_out;
  std::optional<std::int64_t> decode_time_ms;  // of an outcome: charged to the session
  std::optional<wire::EndEvent> end;           // with kCompleted
  std::optional<base::Error> error;            // with kFailed and kCancelled
};

// Legal are queued -> dispatched -> running -> completed | failed | cancelled; dispatched | running -> queued (retry,
// restart, worker loss); queued | dispatched -> failed; dispatched -> completed (`started` and `end` heard at once); any
// non-terminal -> cancelled. Nothing leaves a terminal state.
bool is_legal(wire::JobStatus from, wire::JobStatus to);

}  // namespace llorch::orchestratord::core::jobs
