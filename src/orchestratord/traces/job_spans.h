#pragma once
// The way of a job that has ended, as spans: the job itself, and below it what it waited for and what it did. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/entropy.h"
#include "base/id.h"
#include "wire/task.h"

namespace llorch::orchestratord::traces {

// Times are milliseconds of Unix time, of the last attempt where there were several.
struct FinishedJob {
  base::CorrelationId correlation_id;  // its trace is the spans'; without one they make their own
  std::string model;                   // as the client named it
  std::string model_digest;
  wire::Priority priority = wire::Priority::kInteractive;
  wire::JobStatus status = wire::JobStatus::kCompleted;
  std::string error_code{};  // empty: none
  std::optional<wire::EndEvent> end{};
  std::string pool_id{};  // empty: no pool took it
  std::int64_t attempts = 0;
  std::int64_t tokens_in = 0, tokens_out = 0;
  std::int64_t submitted_ms = 0;
  std::optional<std::int64_t> dispatched_ms{}, started_ms{};
  std::int64_t finished_ms = 0;
};

// The names of OpenTelemetry's semantic conventions for generative models where they have one, else `llorch.`.
using Attribute = std::pair<std::string_view, std::variant<std::string, std::int64_t>>;

struct Span {
  std::string trace_id, span_id, parent_id;  // hex; no parent: the root of its trace
  std::string_view name;
  bool is_server = false;  // the job; what is below it happens inside
  bool is_error = false;
  std::int64_t begin_ms = 0, end_ms = 0;  // begin_ms <= end_ms
  std::vector<Attribute> attributes{};
};

// Whether the caller wants its trace recorded. A trace that begins here is.
bool is_sampled(const FinishedJob& job);

// `job` first, then of `queue`, `dispatch`, `prefill` and `decode` those that happened, in this order.
std::vector<Span> job_spans(const FinishedJob& job, base::Entropy& entropy);

}  // namespace llorch::orchestratord::traces
