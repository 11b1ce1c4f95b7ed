#include "orchestratord/store/sqlite/job_table.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "orchestratord/store/rows/job_row.h"
#include "orchestratord/store/rows/pool_row.h"
#include "wire/json.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

// Of job_records. The view does not put the event together itself: a schema that is not trusted may not call json_set. A text that is no
// JSON would fail there, and with it all that is read beside it.
#define LLORCH_SQLITE_JOB_COLUMNS                                                                                      \
  LLORCH_JOB_COLUMNS(                                                                                                  \
      "CASE WHEN j.receipt IS NULL THEN j.terminal_event WHEN json_valid(j.terminal_event) AND json_valid(j.receipt) " \
      "THEN json_set(j.terminal_event, '$.job_id', j.job_id, '$.receipt', "                                            \
      "json_set(j.receipt, '$.seed', json(printf('%u', j.receipt_seed)), '$.prompt_sha256', j.receipt_prompt_hash, "   \
      "'$.output_sha256', j.output_hash, '$.tokens_out', json_extract(j.terminal_event, '$.tokens_out'))) END")

base::Result<std::optional<JobRecord>> read_one(Database& database, const char* sql, std::string_view key) {
  const StatementUse row(*TRY(database.statement(sql)));
  row->bind(1, key);
  if (!TRY(row->step())) return std::optional<JobRecord>();
  return std::optional<JobRecord>(read_job(*row));
}

// A row of jobs without its texts, in the table and its indexes.
constexpr std::int64_t kBareRowBytes = 300;

// What many jobs say alike is one row.
struct SharedRow {
  const char* find;
  const char* insert;
};
struct SharedKey {
  std::int64_t key = 0;
  bool is_new = false;
};
base::Result<SharedKey> key_of(Database& database, const SharedRow& sql, const std::vector<std::string>& texts) {
  const auto bind = [&](Statement& statement) {
    for (std::size_t i = 0; i < texts.size(); ++i) statement.bind(static_cast<int>(i) + 1, std::string_view(texts[i]));
  };
  {
    Statement& find = *TRY(database.statement(sql.find));
    const StatementUse found(find);
    bind(find);
    if (TRY(found->step())) return SharedKey{found->integer(0), false};
  }
  Statement* insert = TRY(database.statement(sql.insert));
  bind(*insert);
  TRY(insert->run());
  return SharedKey{database.last_rowid(), true};
}
base::Result<> delete_unused(Database& database, const char* sql, std::int64_t key) {
  Statement* remove = TRY(database.statement(sql));
  remove->bind(1, key);
  return remove->run();
}

// Lower-case hex as bytes; any other text as it is.
void bind_digest(Statement& statement, int index, std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) break;
    bytes += static_cast<char>(high * 16 + low);
  }
  if (!text.empty() && bytes.size() * 2 == text.size()) {
    statement.bind_blob(index, bytes);
  } else {
    statement.bind(index, text);
  }
}

// The end of a job as its row has it: the receipt is put together again by the view job_records.
struct Ending {
  std::optional<std::string> event;
  std::optional<wire::Receipt> receipt;  // whole; absent: none, or one that stays in the event
  std::optional<std::int64_t> receipt_key;
};
base::Result<Ending> ending_of(Database& database, const JobProgress& p) {
  if (!p.end || !p.end->receipt || p.end->receipt->tokens_out != p.end->tokens_out) {
    return Ending{terminal_event_of(p), std::nullopt, std::nullopt};
  }
  JobProgress bare = p;
  bare.end->job_id.clear();
  bare.end->receipt.reset();
  wire::Receipt alike = *p.end->receipt;
  alike.seed = 0;
  alike.prompt_sha256.clear();
  alike.output_sha256.clear();
  alike.tokens_out = 0;
  const std::int64_t key = TRY(key_of(database,
                                      {.find = "SELECT receipt_key FROM receipts WHERE receipt = ?",
                                       .insert = "INSERT INTO receipts (receipt) VALUES (?)"},
                                      {wire::encode(alike)}))
                               .key;
  return Ending{terminal_event_of(bare), p.end->receipt, key};
}

base::Result<> delete_rows_of(Database& database, const char* sql, const base::JobId& job_id) {
  Statement* statement = TRY(database.statement(sql));
  statement->bind(1, std::string_view(job_id.value));
  return statement->run();
}

}  // namespace

base::Result<bool> insert_job(Database& database, const JobRecord& job, const PayloadRow* payload) {
  const std::string facts = wire::encode(job.facts);
  const SharedKey model =
      TRY(key_of(database,
                 {.find = "SELECT model_key FROM models WHERE model = ? AND model_ref = ? AND model_facts = ?",
                  .insert = "INSERT INTO models (model, model_ref, model_facts) VALUES (?, ?, ?)"},
                 {job.model, job.model_ref, facts}));
  std::size_t text_bytes = job.job_id.value.size() + job.correlation_id.value.size() + job.params.size();
  if (job.task_id != job.job_id.value) text_bytes += job.task_id.size();
  if (job.session_id) text_bytes += job.session_id->size();
  if (model.is_new) text_bytes += 2 * (job.model.size() + job.model_ref.size() + facts.size());  // and in its index
  // A job's id and a task's are looked for in one place, where no index refuses one that is taken as the other.
  Statement* insert = TRY(database.statement(
      "INSERT INTO jobs (job_id, task_id, session_id, correlation_id, request_hash, priority, model_key, "
      "prompt_hash, params, max_tokens, seed, on_disconnect, timeout_ms, deadline_ms, tokens_in, created_at, "
      "session_key, tenant_id, record_bytes, status, attempts) SELECT ?1, nullif(?2, ?1), ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
      "?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, 'queued', 0 "
      "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE job_id = ?2 AND job_id <> ?1) "
      "AND NOT EXISTS (SELECT 1 FROM jobs WHERE task_id IN (?1, ?2)) "
      "ON CONFLICT DO NOTHING"));
  insert->bind(1, std::string_view(job.job_id.value)).bind(2, std::string_view(job.task_id)).bind(3, job.session_id);
  bind_digest(*insert, 5, job.request_sha256);
  bind_digest(*insert, 8, job.prompt_sha256);
  insert->bind(4, std::string_view(job.correlation_id.value)).bind(6, wire::enum_name(job.priority));
  insert->bind(7, model.key).bind(9, std::string_view(job.params)).bind(10, job.max_tokens);
  insert->bind(11, std::bit_cast<std::int64_t>(job.seed)).bind(12, wire::enum_name(job.on_disconnect));
  insert->bind(13, job.timeout_ms).bind(14, job.deadline_ms).bind(15, job.tokens_in).bind(16, job.submitted_unix_ms);
  insert->bind(17, job.session_key).bind(18, std::string_view(job.tenant_id));
  insert->bind(19, kBareRowBytes + static_cast<std::int64_t>(text_bytes));
  TRY(insert->run());
  if (database.changes() == 0) {
    TRY(delete_unused(database, "DELETE FROM models WHERE model_key = ? AND jobs_count = 0", model.key));
    return false;
  }
  if (payload == nullptr) return true;
  Statement* sealed =
      TRY(database.statement("INSERT INTO job_payloads (arrival, key_slot, nonce, ciphertext) VALUES (?, ?, ?, ?)"));
  sealed->bind(1, database.last_rowid()).bind(2, std::int64_t{payload->key_slot});
  sealed->bind_blob(3, payload->nonce).bind_blob(4, payload->ciphertext);
  TRY(sealed->run());
  return true;
}

base::Result<Updated> update_job(Database& database, Update& changed) {
  const Transition& transition = *changed.transition;
  const JobProgress& p = transition.progress;
  const bool terminal = wire::is_terminal(p.status);
  const Ending ending = TRY(ending_of(database, p));
  Statement* update = TRY(database.statement(
      "UPDATE jobs SET status = ?1, attempts = ?2, worker_id = coalesce(?3, worker_id), pool_id = coalesce(?4, "
      "pool_id), "
      "dispatched_at = coalesce(?5, dispatched_at), started_at = coalesce(?6, started_at), "
      "completed_at = coalesce(?7, completed_at), tokens_generated = coalesce(?8, tokens_generated), "
      "decode_time_ms = coalesce(?9, decode_time_ms), terminal_event = ?10, last_event_id = ?11, "
      "worker_version = iif(?12, NULL, coalesce(?13, worker_version)), receipt_key = ?14, output_hash = ?15, "
      "receipt_seed = nullif(?16, seed), receipt_prompt_hash = nullif(?17, prompt_hash), "
      "tokens_in = coalesce(?19, tokens_in), record_bytes = record_bytes + ?20 "
      "WHERE job_id = ?18 AND completed_at IS NULL RETURNING tenant_id, record_bytes"));
  update->bind(1, wire::enum_name(p.status)).bind(2, p.attempts).bind(3, p.worker_id).bind(4, p.pool_id);
  update->bind(5, p.dispatched_unix_ms).bind(6, p.started_unix_ms).bind(7, p.finished_unix_ms).bind(8, p.tokens_out);
  update->bind(9, p.decode_time_ms).bind(10, ending.event).bind(11, p.last_event_id);
  update->bind(12, std::int64_t{terminal}).bind(13, p.worker_version).bind(14, ending.receipt_key);
  if (ending.receipt) {
    bind_digest(*update, 15, ending.receipt->output_sha256);
    update->bind(16, std::bit_cast<std::int64_t>(ending.receipt->seed));
    bind_digest(*update, 17, ending.receipt->prompt_sha256);
  }
  update->bind(18, std::string_view(transition.job_id.value)).bind(19, p.tokens_in);
  update->bind(20, static_cast<std::int64_t>(ending.event ? ending.event->size() : 0));
  bool is_found = false;
  {
    const StatementUse row(*update);
    while (TRY(row->step())) {
      is_found = true;
      changed.tenant_id = row->text(0);
      changed.record_bytes = row->integer(1);
    }
  }
  if (!is_found) {
    if (ending.receipt_key) {
      TRY(delete_unused(database, "DELETE FROM receipts WHERE receipt_key = ? AND jobs_count = 0",
                        *ending.receipt_key));
    }
    return TRY(find_job(database, transition.job_id)) ? Updated::kTerminal : Updated::kMissing;
  }
  if (!terminal) return Updated::kDone;
  TRY(delete_rows_of(database, "DELETE FROM job_payloads WHERE arrival = (SELECT arrival FROM jobs WHERE job_id = ?)",
                     transition.job_id));
  TRY(delete_rows_of(database, "DELETE FROM sse_checkpoints WHERE job_id = ?", transition.job_id));
  return Updated::kDone;
}

base::Result<> upsert_checkpoint(Database& database, const Checkpoint& checkpoint) {
  Statement* upsert = TRY(database.statement(
      "INSERT INTO sse_checkpoints (job_id, last_event_seq, last_event_type, prefix_hash, updated_at) "
      "SELECT job_id, ?2, ?3, ?4, ?5 FROM jobs WHERE job_id = ?1 AND completed_at IS NULL "
      "ON CONFLICT (job_id) DO UPDATE SET last_event_seq = ?2, last_event_type = ?3, prefix_hash = ?4, updated_at = "
      "?5 WHERE last_event_seq < ?2"));
  upsert->bind(1, std::string_view(checkpoint.job_id.value)).bind(2, checkpoint.seq);
  upsert->bind(3, std::string_view(checkpoint.event)).bind(4, std::string_view(checkpoint.prefix_hash));
  upsert->bind(5, checkpoint.unix_ms);
  return upsert->run();
}

namespace {

// Which they are is the same in each statement of the transaction. The order is that of an index.
#define LLORCH_GONE \
  "FROM jobs WHERE completed_at IS NOT NULL AND completed_at < ?1 ORDER BY completed_at, arrival LIMIT ?2"
#define LLORCH_GONE_OF_TENANT                                                                   \
  "FROM jobs WHERE tenant_id = ?3 AND completed_at IS NOT NULL AND completed_at < ?1 ORDER BY " \
  "completed_at, record_bytes, arrival LIMIT ?2"

struct RemovalSql {
  const char* charge_sessions;
  const char* charge_tenants;  // ?4: the begin of a day
  const char* remove;
};
#define LLORCH_REMOVAL_SQL(gone)                                                                                      \
  {                                                                                                                   \
    .charge_sessions =                                                                                                \
        "UPDATE sessions SET turns = sessions.turns + g.turns, tokens_in = sessions.tokens_in + g.tokens_in, "        \
        "tokens_out = sessions.tokens_out + g.tokens_out, "                                                           \
        "decode_time_ms = sessions.decode_time_ms + g.decode_time_ms, "                                               \
        "touched_at = max(touched_at, g.last_at) FROM (SELECT " LLORCH_SESSION_SUMS " FROM (SELECT * " gone           \
        ") WHERE session_key IS NOT NULL GROUP BY session_key) g WHERE g.session_key = sessions.session_key",         \
    .charge_tenants = "INSERT INTO tenant_use (tenant_id, day_begin_at, tokens) SELECT tenant_id, " LLORCH_DAY_OF_JOB \
                      " AS day, sum(" LLORCH_TENANT_TOKENS ") FROM (SELECT * " gone                                   \
                      ") WHERE completed_at >= ?4 GROUP BY tenant_id, day "                                           \
                      "ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens",                                  \
    .remove = "DELETE FROM jobs WHERE arrival IN (SELECT arrival " gone ") RETURNING tenant_id, record_bytes",        \
  }
constexpr RemovalSql kOfAll = LLORCH_REMOVAL_SQL(LLORCH_GONE);
constexpr RemovalSql kOfTenant = LLORCH_REMOVAL_SQL(LLORCH_GONE_OF_TENANT);

base::Result<> remove_part(Database& database, const Removal::Part& part, Removal& removal) {
  const RemovalSql& sql = part.tenant_id ? kOfTenant : kOfAll;
  const auto prepare = [&](const char* text) -> base::Result<Statement*> {
    Statement* statement = TRY(database.statement(text));
    statement->bind(1, removal.finished_before_unix_ms).bind(2, part.count_max);
    if (part.tenant_id) statement->bind(3, std::string_view(*part.tenant_id));
    return statement;
  };
  TRY(TRY(prepare(sql.charge_sessions))->run());
  Statement* use = TRY(prepare(sql.charge_tenants));
  use->bind(4, removal.days_from_unix_ms);
  TRY(use->run());
  const StatementUse gone(*TRY(prepare(sql.remove)));
  while (TRY(gone->step())) {
    Records& records = removal.removed[gone->text(0)];
    ++records.count;
    records.bytes += gone->integer(1);
  }
  return {};
}

}  // namespace

base::Result<> remove_finished(Database& database, Removal& removal) {
  Statement* older = TRY(database.statement("DELETE FROM tenant_use WHERE day_begin_at < ?"));
  older->bind(1, removal.days_from_unix_ms);
  TRY(older->run());
  removal.removed.clear();
  for (const Removal::Part& part : removal.parts) TRY(remove_part(database, part, removal));
  return {};
}

base::Result<FinishedJobs> finished_jobs(Database& database) {
  const StatementUse row(*TRY(database.statement("SELECT tenant_id, count(*), sum(" LLORCH_COUNT(
      "record_bytes") "), max(completed_at) FROM jobs "
                      "WHERE completed_at IS NOT NULL GROUP BY tenant_id")));
  FinishedJobs finished;
  while (TRY(row->step())) {
    finished.records[row->text(0)] = {.count = row->integer(1), .bytes = row->integer(2)};
    finished.latest_unix_ms = std::max(finished.latest_unix_ms, row->optional_integer(3));
  }
  return finished;
}

base::Result<std::optional<JobRecord>> find_job(Database& database, const base::JobId& job_id) {
  return read_one(database, "SELECT " LLORCH_SQLITE_JOB_COLUMNS "FROM job_records j WHERE j.job_id = ?", job_id.value);
}

base::Result<std::optional<JobRecord>> find_job_by_task(Database& database, std::string_view task_id) {
  return read_one(database,
                  "SELECT " LLORCH_SQLITE_JOB_COLUMNS
                  "FROM job_records j WHERE j.arrival IN (SELECT arrival FROM jobs WHERE "
                  "job_id = ?1 UNION ALL SELECT arrival FROM jobs WHERE task_id = ?1) ORDER BY j.arrival",
                  task_id);
}

namespace {
// `jobs`: where their numbers are found, and by which conditions.
#define LLORCH_NEWEST(jobs)                                                                              \
  "SELECT " LLORCH_SQLITE_JOB_COLUMNS "FROM job_records j WHERE j.arrival IN (SELECT arrival FROM " jobs \
  " AND arrival < ?1 ORDER BY arrival DESC LIMIT ?2) ORDER BY j.arrival DESC"

// The second condition of a tenant's is that of the index jobs_of_tenants. Live jobs are few: whoever has a million that have ended has
// them found by the index of the live ones, without which SQLite refuses the statement.
const char* newest_sql(const Listing& listing) {
  if (listing.only_live && listing.tenant_id) {
    return LLORCH_NEWEST(
        "jobs INDEXED BY jobs_live WHERE completed_at IS NULL AND tenant_id = ?3 AND instr(task_id, ':') > 0");
  }
  if (listing.only_live) return LLORCH_NEWEST("jobs INDEXED BY jobs_live WHERE completed_at IS NULL");
  if (listing.tenant_id) return LLORCH_NEWEST("jobs WHERE tenant_id = ?3 AND instr(task_id, ':') > 0");
  return "SELECT " LLORCH_SQLITE_JOB_COLUMNS "FROM job_records j WHERE j.arrival < ?1 ORDER BY j.arrival DESC LIMIT ?2";
}
#undef LLORCH_NEWEST
}  // namespace

base::Result<std::vector<JobRecord>> newest_jobs(Database& database, const Listing& listing) {
  const StatementUse row(*TRY(database.statement(newest_sql(listing))));
  row->bind(1, listing.before.value_or(std::numeric_limits<std::int64_t>::max())).bind(2, listing.count_max);
  if (listing.tenant_id) row->bind(3, std::string_view(*listing.tenant_id));
  std::vector<JobRecord> jobs;
  while (TRY(row->step())) jobs.push_back(read_job(*row));
  return jobs;
}

base::Result<std::vector<LiveJob>> live_jobs(Database& database) {
  const StatementUse row(*TRY(database.statement(
      "SELECT " LLORCH_SQLITE_JOB_COLUMNS
      ", p.key_slot, p.nonce, p.ciphertext, s.last_event_seq FROM job_records j "
      "LEFT JOIN job_payloads p ON p.arrival = j.arrival LEFT JOIN sse_checkpoints s ON s.job_id = j.job_id "
      "WHERE j.completed_at IS NULL ORDER BY j.arrival")));
  std::vector<LiveJob> jobs;
  while (TRY(row->step())) jobs.push_back(read_live_job(*row));
  return jobs;
}

base::Result<std::vector<core::sessions::TenantUse>> tenant_use(Database& database, std::int64_t ended_from_unix_ms) {
  const StatementUse row(*TRY(database.statement(LLORCH_TENANT_USE("?1"))));
  row->bind(1, ended_from_unix_ms);
  std::vector<core::sessions::TenantUse> tenants;
  while (TRY(row->step())) tenants.push_back({row->text(0), row->integer(1)});
  return tenants;
}

base::Result<> upsert_pool(Database& database, const KnownPool& pool, std::int64_t now_unix_ms) {
  Statement* upsert = TRY(
      database.statement("INSERT INTO pools (pool_id, endpoint, updated_at) VALUES (?, ?, ?) ON CONFLICT (pool_id) DO "
                         "UPDATE SET endpoint = excluded.endpoint, updated_at = excluded.updated_at"));
  upsert->bind(1, std::string_view(pool.pool_id.value)).bind(2, std::string_view(pool.endpoint)).bind(3, now_unix_ms);
  return upsert->run();
}

base::Result<> set_desired_state(Database& database, const KnownPool& pool, std::int64_t now_unix_ms) {
  if (!pool.endpoint.empty()) TRY(upsert_pool(database, pool, now_unix_ms));
  Statement* update = TRY(database.statement("UPDATE pools SET draining = ?, orders = ? WHERE pool_id = ?"));
  update->bind(1, std::int64_t{pool.desired.draining}).bind(2, desired_state_column(pool.desired));
  update->bind(3, std::string_view(pool.pool_id.value));
  return update->run();
}

base::Result<> delete_pool(Database& database, const base::PoolId& pool_id) {
  Statement* remove = TRY(database.statement("DELETE FROM pools WHERE pool_id = ?"));
  remove->bind(1, std::string_view(pool_id.value));
  return remove->run();
}

base::Result<std::vector<KnownPool>> known_pools(Database& database) {
  const StatementUse row(
      *TRY(database.statement("SELECT pool_id, endpoint, draining, orders FROM pools ORDER BY pool_id")));
  std::vector<KnownPool> pools;
  while (TRY(row->step())) {
    pools.push_back(
        {base::PoolId(row->text(0)), row->text(1), read_desired_state(row->integer(2) != 0, row->optional_text(3))});
  }
  return pools;
}

}  // namespace llorch::orchestratord::store::sqlite
