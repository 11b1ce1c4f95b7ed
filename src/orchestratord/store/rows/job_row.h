#pragma once
// One row of the table jobs as a JobRecord, whichever database it comes from.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "orchestratord/store/store.h"
#include "wire/json.h"

namespace llorch::orchestratord::store {

// A checkpoint of a stream names its last event, and two events come before its first token. Tokens of a prompt are told as well.
inline constexpr std::int64_t kEventsBeforeTokens = 2;
constexpr std::int64_t tokens_before(std::int64_t checkpoint_seq) {
  return std::max<std::int64_t>(0, checkpoint_seq + 1 - kEventsBeforeTokens);
}

// Columns in the order of read_job; kJobColumns of them. `terminal_event`: the expression for the whole event.
#define LLORCH_JOB_COLUMNS(terminal_event)                                                                       \
  "j.job_id, j.task_id, j.session_id, j.correlation_id, j.request_hash, j.priority, j.model, j.model_ref, "      \
  "j.model_facts, j.prompt_hash, j.params, j.max_tokens, j.seed, j.on_disconnect, j.timeout_ms, j.deadline_ms, " \
  "j.tokens_in, j.created_at, j.status, j.attempts, j.worker_id, j.pool_id, j.dispatched_at, j.started_at, "     \
  "j.completed_at, j.tokens_generated, " terminal_event                                                          \
  ", j.last_event_id, j.session_key, j.decode_time_ms, "                                                         \
  "j.tenant_id, j.worker_version, j.arrival "
inline constexpr int kJobColumns = 33;

// How JobRecord::params of a job begins whose tenant is charged nothing for it, because it stands for one that was charged.
#define LLORCH_CHARGED_PARAMS "{\"charged\":true,"
// What a job's tenant is charged for it.
#define LLORCH_TENANT_TOKENS                      \
  "CASE WHEN params LIKE '" LLORCH_CHARGED_PARAMS \
  "%' THEN 0 ELSE tokens_generated + CASE WHEN attempts > 0 THEN tokens_in ELSE 0 END END"
// When the day began on which a job ended.
#define LLORCH_DAY_OF_JOB "completed_at - completed_at % 86400000"
// Tenant and tokens of the jobs that ended on the day that begins at the time of the parameter, or later.
#define LLORCH_TENANT_USE(parameter)                                                            \
  "SELECT tenant_id, CAST(sum(tokens) AS BIGINT) FROM (SELECT tenant_id, " LLORCH_TENANT_TOKENS \
  " AS tokens "                                                                                 \
  "FROM jobs WHERE completed_at >= " parameter                                                  \
  " UNION ALL SELECT tenant_id, tokens FROM tenant_use "                                        \
  "WHERE day_begin_at >= " parameter ") AS used GROUP BY tenant_id ORDER BY tenant_id"
// What the jobs of a query that names them `gone` add to their session.
#define LLORCH_SESSION_SUMS                                                                                      \
  "session_key, count(*) AS turns, "                                                                             \
  "CAST(sum(CASE WHEN attempts > 0 THEN tokens_in ELSE 0 END) AS BIGINT) AS tokens_in, "                         \
  "CAST(sum(tokens_generated) AS BIGINT) AS tokens_out, CAST(sum(decode_time_ms) AS BIGINT) AS decode_time_ms, " \
  "max(completed_at) AS last_at"

// The columns outcome and terminal_event.
std::optional<std::string> outcome_of(const JobProgress& progress);
std::optional<std::string> terminal_event_of(const JobProgress& progress);

base::Error bad_row(std::string_view column);
// A live job that this program would not run as it was accepted, which is no reason to end or to change it. Its row, and what lies in it as
// JSON, were whole when they were written.
base::Error unreadable_job(const base::JobId& job_id, const base::Error& why);

template <class E>
base::Result<E> read_enum(const std::string& text, std::string_view column) {
  const std::optional<E> value = wire::enum_from_name<E>(text);
  if (!value) return base::fail(bad_row(column));
  return *value;
}

// `row`: text(column), integer(column), optional_text(column), optional_integer(column).
template <class Row>
base::Result<JobProgress> read_progress(const Row& row) {
  JobProgress p;
  p.status = TRY(read_enum<wire::JobStatus>(row.text(18), "status"));
  p.attempts = row.integer(19);
  p.worker_id = row.optional_text(20);
  p.pool_id = row.optional_text(21);
  p.dispatched_unix_ms = row.optional_integer(22);
  p.started_unix_ms = row.optional_integer(23);
  p.finished_unix_ms = row.optional_integer(24);
  p.tokens_out = row.integer(25);
  if (p.status == wire::JobStatus::kCompleted) {
    p.end = TRY(wire::decode<wire::EndEvent>(row.text(26)));
  } else if (wire::is_terminal(p.status)) {
    p.error = TRY(wire::decode<wire::ErrorBody>(row.text(26)));
  }
  p.last_event_id = row.optional_text(27);
  p.decode_time_ms = row.integer(29);
  p.worker_version = row.optional_text(31);
  return p;
}

template <class Row>
base::Result<JobRecord> read_job(const Row& row) {
  JobRecord job;
  job.job_id = base::JobId(row.text(0));
  job.task_id = row.text(1);
  job.session_id = row.optional_text(2);
  job.session_key = row.optional_integer(28);
  job.tenant_id = row.text(30);
  job.correlation_id = base::CorrelationId(row.text(3));
  job.request_sha256 = row.text(4);
  job.priority = TRY(read_enum<wire::Priority>(row.text(5), "priority"));
  job.model = row.text(6);
  job.model_ref = row.text(7);
  job.facts = TRY(wire::decode<wire::ModelFacts>(row.text(8)));
  job.prompt_sha256 = row.text(9);
  job.params = row.text(10);
  job.max_tokens = row.integer(11);
  job.seed = std::bit_cast<std::uint64_t>(row.integer(12));
  job.on_disconnect = TRY(read_enum<wire::OnDisconnect>(row.text(13), "on_disconnect"));
  job.timeout_ms = row.optional_integer(14);
  job.deadline_ms = row.optional_integer(15);
  job.tokens_in = row.integer(16);
  job.submitted_unix_ms = row.integer(17);
  job.arrival = row.integer(32);
  job.progress = TRY(read_progress(row));
  return job;
}

// UNSUPPORTED_FORMAT_VERSION: see unreadable_job().
template <class Row>
base::Result<JobRecord> read_live_job(const Row& row) {
  auto job = read_job(row);
  if (!job) return base::fail(unreadable_job(base::JobId(row.text(0)), job.error()));
  return job;
}

}  // namespace llorch::orchestratord::store
