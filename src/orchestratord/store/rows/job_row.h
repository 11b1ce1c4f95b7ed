#pragma once
// One row of the table jobs as a JobRecord, whichever database it comes from.
#include <algorithm>
#include <bit>
#include <boost/config.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "orchestratord/store/backend.h"
#include "orchestratord/store/rows/payload_row.h"
#include "wire/json.h"

namespace llorch::orchestratord::store {

// A checkpoint of a stream names its last event, and two events come before its first token. Tokens of a prompt are told as well.
inline constexpr std::int64_t kEventsBeforeTokens = 2;
constexpr std::int64_t tokens_before(std::int64_t checkpoint_seq) {
  return std::max(checkpoint_seq, kEventsBeforeTokens - 1) - (kEventsBeforeTokens - 1);
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
// More than any count or time of a job is: sums of what is below, and times it is added to, do not overflow.
#define LLORCH_COUNT_MAX 281474976710656
// A count of a row for a sum; a number that no job has is none.
#define LLORCH_COUNT(column) \
  "CASE WHEN " column " BETWEEN 0 AND " BOOST_STRINGIZE(LLORCH_COUNT_MAX) " THEN " column " ELSE 0 END"
// What a job's tenant is charged for it.
#define LLORCH_TENANT_TOKENS                                                       \
  "CASE WHEN params LIKE '" LLORCH_CHARGED_PARAMS "%' THEN 0 ELSE (" LLORCH_COUNT( \
      "tokens_generated") ") + CASE WHEN attempts > 0 THEN " LLORCH_COUNT("tokens_in") " ELSE 0 END END"
// When the day began on which a job ended.
#define LLORCH_DAY_OF_JOB "completed_at - completed_at % 86400000"
// Tenant and tokens of the jobs that ended on the day that begins at the time of the parameter, or later.
#define LLORCH_TENANT_USE(parameter) \
  "SELECT tenant_id, CAST(sum(tokens) AS BIGINT) FROM (SELECT tenant_id, " LLORCH_TENANT_TOKENS \
  " AS tokens "                                                                                 \
  "FROM jobs WHERE completed_at >= " parameter                                                  \
  " UNION ALL SELECT tenant_id, " LLORCH_COUNT("tokens") " FROM tenant_use "                                        \
  "WHERE day_begin_at >= " parameter ") AS used GROUP BY tenant_id ORDER BY tenant_id"
// What the jobs of a query that names them `gone` add to their session.
#define LLORCH_SESSION_SUMS \
  "session_key, count(*) AS turns, "                                                                             \
  "CAST(sum(CASE WHEN attempts > 0 THEN " LLORCH_COUNT("tokens_in") " ELSE 0 END) AS BIGINT) AS tokens_in, "                         \
  "CAST(sum(" LLORCH_COUNT("tokens_generated") ") AS BIGINT) AS tokens_out, CAST(sum(" LLORCH_COUNT("decode_time_ms") ") AS BIGINT) AS decode_time_ms, " \
  "max(completed_at) AS last_at"

// The columns outcome and terminal_event.
std::optional<std::string> outcome_of(const JobProgress& progress);
std::optional<std::string> terminal_event_of(const JobProgress& progress);

base::Error bad_row(std::string_view column);
base::Error unreadable_ending();
// A live job that a newer program accepted and would run: see read_stored().
base::Error newer_job(const base::JobId& job_id, const base::Error& why);

// What a live job has as JSON. UNSUPPORTED_FORMAT_VERSION: a newer program wrote it, for all of it can be read but fields that this one
// does not know. CORRUPT_FILE: it cannot be read.
template <class T>
base::Result<T> read_stored(const std::string& text) {
  auto read = wire::decode<T>(text, wire::UnknownKeys::kRefuse);
  if (read) return read;
  const bool is_newer = wire::decode<T>(text).has_value();
  const auto code = is_newer ? base::ErrorCode::kUnsupportedFormatVersion : base::ErrorCode::kCorruptFile;
  return base::fail(code, std::move(read).error().message);
}

// One damaged row is its job's matter: what of it cannot be read has its default, and JobRecord::unreadable names the first such column.
template <class T>
void take(JobRecord& job, T& value, std::optional<T> read, std::string_view column) {
  if (read) {
    value = *std::move(read);
  } else if (!job.unreadable) {
    job.unreadable = bad_row(column);
  }
}
template <class T>
std::optional<T> decoded(const std::string& text) {
  auto read = wire::decode<T>(text);
  return read ? std::optional(*std::move(read)) : std::nullopt;
}
inline void take_count(JobRecord& job, std::int64_t& value, std::int64_t read, std::string_view column) {
  take(job, value, read >= 0 && read <= LLORCH_COUNT_MAX ? std::optional(read) : std::nullopt, column);
}
inline void take_count(JobRecord& job, std::optional<std::int64_t>& value, std::optional<std::int64_t> read,
                       std::string_view column) {
  if (read) take_count(job, value.emplace(), *read, column);
}

// `row`: text(column), integer(column), optional_text(column), optional_integer(column).
template <class Row>
void read_progress(const Row& row, JobRecord& job) {
  JobProgress& p = job.progress;
  take_count(job, p.finished_unix_ms, row.optional_integer(24), "completed_at");
  const bool has_ended = p.finished_unix_ms.has_value();
  p.status = has_ended ? wire::JobStatus::kFailed : wire::JobStatus::kQueued;
  auto status = wire::enum_from_name<wire::JobStatus>(row.text(18));
  if (status && wire::is_terminal(*status) != has_ended) status.reset();
  take(job, p.status, status, "status");
  take_count(job, p.attempts, row.integer(19), "attempts");
  p.worker_id = row.optional_text(20);
  p.pool_id = row.optional_text(21);
  take_count(job, p.dispatched_unix_ms, row.optional_integer(22), "dispatched_at");
  take_count(job, p.started_unix_ms, row.optional_integer(23), "started_at");
  take_count(job, p.tokens_out, row.integer(25), "tokens_generated");
  if (p.status == wire::JobStatus::kCompleted) {
    p.end = decoded<wire::EndEvent>(row.text(26));
  } else if (has_ended) {
    p.error = decoded<wire::ErrorBody>(row.text(26));
  }
  if (has_ended && !p.end && !p.error) p.error = wire::error_body(unreadable_ending(), job.correlation_id);
  p.last_event_id = row.optional_text(27);
  take_count(job, p.decode_time_ms, row.integer(29), "decode_time_ms");
  p.worker_version = row.optional_text(31);
}

template <class Row>
JobRecord read_job(const Row& row) {
  JobRecord job;
  job.job_id = base::JobId(row.text(0));
  job.task_id = row.text(1);
  job.session_id = row.optional_text(2);
  job.session_key = row.optional_integer(28);
  job.tenant_id = row.text(30);
  job.correlation_id = base::CorrelationId(row.text(3));
  job.request_sha256 = row.text(4);
  take(job, job.priority, wire::enum_from_name<wire::Priority>(row.text(5)), "priority");
  job.model = row.text(6);
  job.model_ref = row.text(7);
  take(job, job.facts, decoded<wire::ModelFacts>(row.text(8)), "model_facts");
  job.prompt_sha256 = row.text(9);
  job.params = row.text(10);
  take_count(job, job.max_tokens, row.integer(11), "max_tokens");
  job.seed = std::bit_cast<std::uint64_t>(row.integer(12));
  take(job, job.on_disconnect, wire::enum_from_name<wire::OnDisconnect>(row.text(13)), "on_disconnect");
  take_count(job, job.timeout_ms, row.optional_integer(14), "timeout_ms");
  take_count(job, job.deadline_ms, row.optional_integer(15), "deadline_ms");
  take_count(job, job.tokens_in, row.integer(16), "tokens_in");
  take_count(job, job.submitted_unix_ms, row.integer(17), "created_at");
  job.arrival = row.integer(32);
  read_progress(row, job);
  return job;
}

// Behind the columns of a job those of its payload, `key_slot`, `nonce` and `ciphertext`, and `last_event_seq` of its checkpoint.
template <class Row>
LiveJob read_live_job(const Row& row) {
  LiveJob live{read_job(row), read_payload(row, kJobColumns)};
  if (!live.payload && row.optional_integer(kJobColumns) && !live.job.unreadable)
    live.job.unreadable = bad_row("key_slot");
  if (const auto seq = row.optional_integer(kJobColumns + 3)) {
    take_count(live.job, live.job.progress.tokens_out, *seq, "last_event_seq");
    live.job.progress.tokens_out = tokens_before(live.job.progress.tokens_out.value_or(0));
  }
  return live;
}

}  // namespace llorch::orchestratord::store
