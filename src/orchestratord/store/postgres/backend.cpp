#include "orchestratord/store/postgres/backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <variant>

#include "orchestratord/store/rows/job_row.h"
#include "orchestratord/store/rows/pool_row.h"
#include "orchestratord/store/rows/session_row.h"
#include "wire/json.h"

namespace llorch::orchestratord::store::postgres {
namespace {

using base::ErrorCode;

#define LLORCH_PG_JOB_COLUMNS LLORCH_JOB_COLUMNS("j.terminal_event")

// Counting reads an index, and of rows that came since the last vacuum the rows.
constexpr std::chrono::milliseconds kCountTimeout{60'000};  // also in the statement

// Whether the session is as good as before: its values were wrong (22), its rows (23), others came first (40, 55), the server lacks
// something now (53), a limit was passed (54), somebody cancelled it (57014), or a file could not be read (58).
bool is_of_the_statement(const base::Error& error) {
  constexpr std::array<std::string_view, 8> kStates{"22", "23", "40", "53", "54", "55", "57014", "58"};
  return std::ranges::any_of(error.details, [&](const auto& detail) {
    const auto* state = std::get_if<std::string>(&detail.second);
    return detail.first == "sqlstate" && state != nullptr &&
           std::ranges::any_of(kStates, [&](std::string_view prefix) { return state->starts_with(prefix); });
  });
}

// What the server would refuse, and the whole transaction with it.
base::Result<> check_texts(const JobRecord& job) {
  const auto good = [](std::string_view text) { return is_storable(text); };
  const std::string facts = wire::encode(job.facts);
  if (good(job.job_id.value) && good(job.task_id) && good(job.session_id.value_or("")) &&
      good(job.correlation_id.value) && good(job.tenant_id) && good(job.model) && good(job.model_ref) && good(facts) &&
      good(job.params)) {
    return {};
  }
  return base::fail(ErrorCode::kInvalidParams, "a zero byte or invalid UTF-8 in the request's ids or model reference");
}

// Texts that only describe; losing a byte of them is better than losing the job's end.
std::optional<std::string> storable(const std::optional<std::string>& text) {
  if (!text || is_storable(*text)) return text;
  std::string out;
  for (const char c : *text) out += (c > 0 && c < 0x7f) ? c : '?';
  return out;
}

// Everything of one admission in one statement. A job's id and a task's are looked for in one place. No row comes back if one of the
// ids is taken; a repeated one finds the row that its first attempt left, which the statement itself cannot see yet. A slot is free here:
// whose payload the database says is sealed with its key has ended in commits that a failover lost, and that key is gone.
Query insert_query(const Insert& insert) {
  const JobRecord& job = *insert.job;
  Query query(
      "WITH job AS (INSERT INTO jobs (job_id, task_id, session_id, correlation_id, request_hash, priority, model, "
      "model_ref, model_facts, prompt_hash, params, max_tokens, seed, on_disconnect, timeout_ms, deadline_ms, "
      "tokens_in, created_at, session_key, tenant_id, status) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
      "$12, $13, $14, $15, $16, $17, $18, $23, $24, 'queued' "
      "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE job_id = $2 AND job_id <> $1) "
      "AND NOT EXISTS (SELECT 1 FROM jobs WHERE task_id = $1 AND job_id <> $1) "
      "ON CONFLICT DO NOTHING RETURNING job_id), "
      "sealed AS (INSERT INTO job_payloads (job_id, key_slot, nonce, ciphertext) "
      "SELECT job_id, $19, $20, $21 FROM job WHERE $19 IS NOT NULL ON CONFLICT (key_slot) DO UPDATE SET "
      "job_id = excluded.job_id, nonce = excluded.nonce, ciphertext = excluded.ciphertext) "
      "SELECT job_id FROM job UNION ALL SELECT job_id FROM jobs WHERE job_id = $1 AND $22 <> 0");
  query.add(std::string_view(job.job_id.value)).add(std::string_view(job.task_id)).add(job.session_id);
  query.add(std::string_view(job.correlation_id.value)).add(std::string_view(job.request_sha256));
  query.add(wire::enum_name(job.priority)).add(std::string_view(job.model)).add(std::string_view(job.model_ref));
  query.add(std::string_view(wire::encode(job.facts))).add(std::string_view(job.prompt_sha256));
  query.add(std::string_view(job.params)).add(job.max_tokens).add(std::bit_cast<std::int64_t>(job.seed));
  query.add(wire::enum_name(job.on_disconnect)).add(job.timeout_ms).add(job.deadline_ms).add(job.tokens_in);
  query.add(job.submitted_unix_ms);
  query.add(insert.payload != nullptr ? std::optional(std::int64_t{insert.payload->key_slot}) : std::nullopt);
  query.add_bytes(insert.payload != nullptr ? insert.payload->nonce : std::string());
  query.add_bytes(insert.payload != nullptr ? insert.payload->ciphertext : std::string());
  query.add(std::int64_t{insert.attempt == Attempt::kRepeat}).add(job.session_key);
  query.add(std::string_view(job.tenant_id));
  return query;
}

// Inserts it, or moves its touched_at; the rest of a row never changes. With a job only if that is there.
Query session_query(const core::sessions::SessionRecord& session, const std::optional<std::string>& job_id) {
  Query query(
      "INSERT INTO sessions (session_key, session_id, created_at, touched_at, token_budget, time_budget_ms, "
      "cost_budget_nano, prompt_token_cost_nano, output_token_cost_nano) "
      "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 WHERE $10 IS NULL OR EXISTS (SELECT 1 FROM jobs WHERE job_id = $10) "
      "ON CONFLICT (session_key) DO UPDATE SET touched_at = greatest(sessions.touched_at, excluded.touched_at)");
  query.add(session.key).add(std::string_view(session.session_id.value)).add(session.created_unix_ms);
  query.add(session.touched_unix_ms).add(session.token_budget).add(session.time_budget_ms);
  query.add(session.cost_budget_nano).add(session.prompt_token_cost_nano).add(session.output_token_cost_nano);
  return std::move(query.add(job_id));
}

// The row, and at the end its payload and checkpoint. Answers how many rows changed, how many exist, whose it is and what it counts as.
Query update_query(const Update& update) {
  const JobProgress& p = update.transition->progress;
  Query query(
      "WITH changed AS (UPDATE jobs SET status = $1, attempts = $2, worker_id = coalesce($3, worker_id), "
      "pool_id = coalesce($4, pool_id), dispatched_at = coalesce($5, dispatched_at), "
      "started_at = coalesce($6, started_at), completed_at = coalesce($7, completed_at), "
      "tokens_generated = coalesce($8, tokens_generated), outcome = $9, stop_reason = $10, error_code = $11, "
      "last_error = $12, terminal_event = $13, last_event_id = $14, decode_time_ms = coalesce($17, decode_time_ms), "
      "worker_version = coalesce($18, worker_version), tokens_in = coalesce($19, tokens_in) "
      "WHERE job_id = $15 AND (completed_at IS NULL OR $16 <> 0) RETURNING job_id, tenant_id, record_bytes), "
      "unsealed AS (DELETE FROM job_payloads p USING changed c WHERE p.job_id = c.job_id AND $7 IS NOT NULL), "
      "unmarked AS (DELETE FROM sse_checkpoints s USING changed c WHERE s.job_id = c.job_id AND $7 IS NOT NULL) "
      "SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM jobs WHERE job_id = $15), "
      "(SELECT coalesce(max(tenant_id), '') FROM changed), (SELECT coalesce(max(record_bytes), 0) FROM changed)");
  query.add(wire::enum_name(p.status)).add(p.attempts).add(storable(p.worker_id)).add(storable(p.pool_id));
  query.add(p.dispatched_unix_ms).add(p.started_unix_ms).add(p.finished_unix_ms).add(p.tokens_out);
  query.add(outcome_of(p));
  query.add(p.end ? std::optional(std::string(wire::enum_name(p.end->stop_reason))) : std::nullopt);
  query.add(p.error ? storable(p.error->code) : std::nullopt);
  query.add(p.error ? storable(p.error->message) : std::nullopt);
  query.add(storable(terminal_event_of(p))).add(p.last_event_id);
  query.add(std::string_view(update.transition->job_id.value)).add(std::int64_t{update.attempt == Attempt::kRepeat});
  query.add(p.decode_time_ms).add(storable(p.worker_version)).add(p.tokens_in);
  return query;
}

base::Result<> read_insert(const Rows& rows) {
  if (rows.count() == 1) return {};
  return base::fail(ErrorCode::kConflict, "the job_id or task_id is taken");
}

// Errors: of the answer. What became of the change is in `update`.
base::Result<> read_update(const Rows& rows, Update& update) {
  return rows.read([&](const Values& values) -> base::Result<> {
    update.tenant_id = values.text(0, 2);
    update.record_bytes = values.integer(0, 3);
    update.result = {};
    if (values.integer(0, 0) == 1) return {};
    update.result = values.integer(0, 1) == 0
                        ? base::fail(ErrorCode::kNotFound, "the job store has no such job")
                        : base::fail(ErrorCode::kConflict, "the job already has its terminal state");
    return {};
  });
}

struct AddNote {
  std::vector<Query>& queries;
  void operator()(const std::vector<Checkpoint>& checkpoints) const {
    for (const Checkpoint& checkpoint : checkpoints) {
      Query upsert(
          "INSERT INTO sse_checkpoints (job_id, last_event_seq, last_event_type, prefix_hash, updated_at) "
          "SELECT job_id, $2, $3, $4, $5 FROM jobs WHERE job_id = $1 AND completed_at IS NULL ON CONFLICT (job_id) "
          "DO UPDATE SET last_event_seq = $2, last_event_type = $3, prefix_hash = $4, updated_at = $5 "
          "WHERE sse_checkpoints.last_event_seq < $2");
      upsert.add(std::string_view(checkpoint.job_id.value)).add(checkpoint.seq);
      upsert.add(std::string_view(checkpoint.event)).add(std::string_view(checkpoint.prefix_hash));
      queries.push_back(std::move(upsert.add(checkpoint.unix_ms)));
    }
  }
  void operator()(const PoolSeen& seen) const {
    if (!is_storable(seen.pool.pool_id.value) || !is_storable(seen.pool.endpoint)) return;
    Query upsert(
        "INSERT INTO pools (pool_id, endpoint, updated_at) VALUES ($1, $2, $3) ON CONFLICT (pool_id) "
        "DO UPDATE SET endpoint = $2, updated_at = $3");
    upsert.add(std::string_view(seen.pool.pool_id.value)).add(std::string_view(seen.pool.endpoint));
    queries.push_back(std::move(upsert.add(seen.unix_ms)));
  }
  void operator()(const PoolDesired& set) const {
    if (!is_storable(set.pool.pool_id.value)) return;
    if (!set.pool.endpoint.empty()) (*this)(PoolSeen{set.pool, set.unix_ms});
    Query update("UPDATE pools SET draining = $1, orders = $2 WHERE pool_id = $3");
    update.add(std::int64_t{set.pool.desired.draining}).add(storable(desired_state_column(set.pool.desired)));
    queries.push_back(std::move(update.add(std::string_view(set.pool.pool_id.value))));
  }
  void operator()(const PoolGone& gone) const {
    if (!is_storable(gone.pool_id.value)) return;
    Query remove("DELETE FROM pools WHERE pool_id = $1");
    queries.push_back(std::move(remove.add(std::string_view(gone.pool_id.value))));
  }
  void operator()(const core::sessions::SessionRecord& session) const {
    queries.push_back(session_query(session, std::nullopt));
  }
  void operator()(const SessionGone& gone) const {
    Query remove("DELETE FROM sessions WHERE session_key = $1");
    queries.push_back(std::move(remove.add(gone.session_key)));
  }
};

#define LLORCH_PG_REMOVAL(condition)                                                                        \
  "WITH gone AS (DELETE FROM jobs WHERE arrival IN (SELECT arrival FROM jobs WHERE " condition              \
  "completed_at IS NOT NULL AND completed_at < $1 ORDER BY completed_at, arrival LIMIT $2) RETURNING *), "  \
  "charged AS (UPDATE sessions s SET turns = s.turns + g.turns, tokens_in = s.tokens_in + g.tokens_in, "    \
  "tokens_out = s.tokens_out + g.tokens_out, decode_time_ms = s.decode_time_ms + g.decode_time_ms, "        \
  "touched_at = greatest(s.touched_at, g.last_at) FROM (SELECT " LLORCH_SESSION_SUMS                        \
  " FROM gone WHERE session_key IS NOT NULL GROUP BY session_key) g WHERE g.session_key = s.session_key), " \
  "used AS (INSERT INTO tenant_use (tenant_id, day_begin_at, tokens) SELECT tenant_id, " LLORCH_DAY_OF_JOB  \
  " AS day, sum(" LLORCH_TENANT_TOKENS                                                                      \
  ")::bigint FROM gone WHERE completed_at >= $3 GROUP BY tenant_id, day "                                   \
  "ON CONFLICT (tenant_id, day_begin_at) DO UPDATE SET tokens = tenant_use.tokens + excluded.tokens) "      \
  "SELECT tenant_id, count(*), sum(record_bytes)::bigint FROM gone GROUP BY tenant_id"

// The last statements of its transaction, one for each part, answer whose records went, how many and what they counted as.
void add_removal(const Removal& removal, std::vector<Query>& queries) {
  Query older("DELETE FROM tenant_use WHERE day_begin_at < $1");
  queries.push_back(std::move(older.add(removal.days_from_unix_ms)));
  for (const Removal::Part& part : removal.parts) {
    Query remove(part.tenant_id ? LLORCH_PG_REMOVAL("tenant_id = $4 AND ") : LLORCH_PG_REMOVAL(""));
    remove.add(removal.finished_before_unix_ms).add(part.count_max).add(removal.days_from_unix_ms);
    if (part.tenant_id) remove.add(std::string_view(*part.tenant_id));
    queries.push_back(std::move(remove));
  }
}

// `rows`: of the whole transaction.
base::Result<> read_removal(const std::vector<Rows>& rows, Removal& removal) {
  removal.removed.clear();
  for (std::size_t part = rows.size() - removal.parts.size(); part < rows.size(); ++part) {
    TRY(rows[part].read([&](const Values& values) -> base::Result<> {
      for (int i = 0; i < values.count(); ++i) {
        Records& records = removal.removed[values.text(i, 0)];
        records.count += values.integer(i, 1);
        records.bytes += values.integer(i, 2);
      }
      return {};
    }));
  }
  return {};
}

class PostgresBackend final : public Backend {
 public:
  explicit PostgresBackend(ServerOptions options) : server_(std::move(options)) {}

  base::Result<> open() {
    connection_ = TRY(server_.connect());
    return {};
  }
  Ended commit(Changes changes) override;
  base::Result<FinishedJobs> finished_jobs() override;
  // Its files say what they take, not how much of that is in use.
  base::Result<std::int64_t> record_bytes(std::int64_t, std::int64_t counted_bytes) override { return counted_bytes; }
  // The server's vacuum does that.
  base::Result<bool> give_back_space() override { return false; }
  base::Result<std::optional<JobRecord>> find(const base::JobId& job_id) override;
  base::Result<std::optional<JobRecord>> find_task(const std::string& id) override;
  base::Result<std::vector<JobRecord>> newest(const Listing& listing) override;
  base::Result<std::vector<LiveJob>> live_jobs() override;
  base::Result<std::vector<KnownPool>> pools() override;
  base::Result<std::vector<core::sessions::RestoredSession>> sessions() override;
  base::Result<std::vector<core::sessions::TenantUse>> tenants(std::int64_t ended_from_unix_ms) override;
  base::Result<std::unique_ptr<DatabaseCopy>> copy_into(const std::string&) override {
    return base::fail(ErrorCode::kInvalidParams, "the jobs are in PostgreSQL: pg_dump copies them");
  }

 private:
  base::Result<> write(Changes& changes);
  base::Result<Rows> query(Query query);
  void after(const base::Error& error);
  base::Result<std::optional<JobRecord>> find_one(const char* sql, const std::string& id);

  Server server_;
  std::optional<Connection> connection_;  // none after an error that is more than a statement's
};

base::Result<Rows> PostgresBackend::query(Query query) {
  if (!connection_) TRY(open());
  auto rows = connection_->query(std::move(query));
  if (!rows) after(rows.error());
  return rows;
}

// The session holds the lock, so it ends only if it has to.
void PostgresBackend::after(const base::Error& error) {
  if (!connection_) return;
  const bool is_over = !connection_->is_usable() || !is_of_the_statement(error) ||
                       (connection_->in_transaction() && !connection_->query(Query("ROLLBACK")));
  if (is_over) connection_.reset();
}

// Two round trips: everything, then COMMIT. Until that is sent, a lost connection ends in a rollback.
Ended PostgresBackend::commit(Changes changes) {
  if (auto written = write(changes); !written) {
    after(written.error());
    return {std::move(written), false};
  }
  const auto rows = query(Query("COMMIT"));
  if (!rows) return {base::fail(rows.error()), true};
  // A transaction that cannot be committed answers ROLLBACK, without an error.
  if (rows->command() != "COMMIT") {
    return {base::fail(ErrorCode::kStoreUnavailable, "the PostgreSQL server rolled the transaction back"), false};
  }
  return {};
}

// Read-committed: each statement sees those before it, and nobody else writes.
base::Result<> PostgresBackend::write(Changes& changes) {
  std::vector<Query> queries{Query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")};
  for (Insert& insert : changes.inserts) {
    insert.result = check_texts(*insert.job);
    if (!insert.result) continue;
    queries.push_back(insert_query(insert));
    if (insert.session != nullptr) queries.push_back(session_query(*insert.session, insert.job->job_id.value));
  }
  for (const Update& update : changes.updates) queries.push_back(update_query(update));
  for (const Note& note : changes.notes) std::visit(AddNote{queries}, note);
  if (changes.removal != nullptr) add_removal(*changes.removal, queries);

  if (!connection_) TRY(open());
  const std::vector<Rows> rows = TRY(connection_->pipeline(queries));
  std::size_t next = 1;  // behind BEGIN
  for (Insert& insert : changes.inserts) {
    if (!insert.result) continue;
    insert.result = read_insert(rows[next++]);
    if (insert.session != nullptr) ++next;
  }
  for (Update& update : changes.updates) TRY(read_update(rows[next++], update));
  return changes.removal != nullptr ? read_removal(rows, *changes.removal) : base::Result<>();
}

// The server gives up by itself before it counts as gone.
base::Result<FinishedJobs> PostgresBackend::finished_jobs() {
  if (!connection_) TRY(open());
  const std::vector<Query> queries{
      Query("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"), Query("SET LOCAL statement_timeout = '60s'"),
      Query("SELECT tenant_id, count(*), sum(record_bytes)::bigint, max(completed_at) FROM jobs "
            "WHERE completed_at IS NOT NULL GROUP BY tenant_id"),
      Query("COMMIT")};
  const auto counted = [&] {
    const ReplyTimeout patient(*connection_, 2 * kCountTimeout);
    return connection_->pipeline(queries);
  }();
  if (!counted) {
    after(counted.error());
    return base::fail(counted.error());
  }
  return (*counted)[2].read([](const Values& values) {
    FinishedJobs finished;
    for (int i = 0; i < values.count(); ++i) {
      finished.records[values.text(i, 0)] = {.count = values.integer(i, 1), .bytes = values.integer(i, 2)};
      finished.latest_unix_ms = std::max(finished.latest_unix_ms, values.optional_integer(i, 3));
    }
    return finished;
  });
}

base::Result<std::optional<JobRecord>> PostgresBackend::find_one(const char* sql, const std::string& id) {
  if (!is_storable(id)) return std::optional<JobRecord>();
  Query by_id(sql);
  const Rows rows = TRY(query(std::move(by_id.add(std::string_view(id)))));
  if (rows.count() == 0) return std::optional<JobRecord>();
  return std::optional<JobRecord>(TRY(rows.read([](const Values& values) { return read_job(RowView{values, 0}); })));
}

base::Result<std::optional<JobRecord>> PostgresBackend::find(const base::JobId& job_id) {
  return find_one("SELECT " LLORCH_PG_JOB_COLUMNS "FROM jobs j WHERE j.job_id = $1", job_id.value);
}

base::Result<std::optional<JobRecord>> PostgresBackend::find_task(const std::string& id) {
  return find_one(
      "SELECT " LLORCH_PG_JOB_COLUMNS "FROM jobs j WHERE j.task_id = $1 OR j.job_id = $1 ORDER BY j.arrival", id);
}

#define LLORCH_NEWEST(jobs, and_more) \
  "SELECT " LLORCH_PG_JOB_COLUMNS "FROM " jobs " j WHERE j.arrival < $1" and_more " ORDER BY j.arrival DESC LIMIT $2"
// Few: they are read first, by the index jobs_live, and not found among all that a tenant ever had.
#define LLORCH_LIVE "WITH live AS MATERIALIZED (SELECT * FROM jobs WHERE completed_at IS NULL) "
// That of the index jobs_of_tenants.
#define LLORCH_OF_TENANT " AND j.tenant_id = $3 AND strpos(j.task_id, ':') > 0"

const char* newest_sql(const Listing& listing) {
  if (listing.only_live && listing.tenant_id) return LLORCH_LIVE LLORCH_NEWEST("live", LLORCH_OF_TENANT);
  if (listing.only_live) return LLORCH_LIVE LLORCH_NEWEST("live", "");
  if (listing.tenant_id) return LLORCH_NEWEST("jobs", LLORCH_OF_TENANT);
  return LLORCH_NEWEST("jobs", "");
}
#undef LLORCH_OF_TENANT
#undef LLORCH_LIVE
#undef LLORCH_NEWEST

base::Result<std::vector<JobRecord>> PostgresBackend::newest(const Listing& listing) {
  Query newest(newest_sql(listing));
  newest.add(listing.before.value_or(std::numeric_limits<std::int64_t>::max())).add(listing.count_max);
  if (listing.tenant_id) newest.add(std::string_view(*listing.tenant_id));
  const Rows rows = TRY(query(std::move(newest)));
  return rows.read([](const Values& values) {
    std::vector<JobRecord> jobs;
    for (int i = 0; i < values.count(); ++i) jobs.push_back(read_job(RowView{values, i}));
    return jobs;
  });
}

base::Result<std::vector<LiveJob>> PostgresBackend::live_jobs() {
  const Rows rows = TRY(
      query(Query("SELECT " LLORCH_PG_JOB_COLUMNS ", p.key_slot, p.nonce, p.ciphertext, s.last_event_seq FROM jobs j "
                  "LEFT JOIN job_payloads p ON p.job_id = j.job_id LEFT JOIN sse_checkpoints s ON s.job_id = j.job_id "
                  "WHERE j.completed_at IS NULL ORDER BY j.arrival")));
  return rows.read([](const Values& values) {
    std::vector<LiveJob> jobs;
    for (int i = 0; i < values.count(); ++i) jobs.push_back(read_live_job(RowView{values, i}));
    return jobs;
  });
}

base::Result<std::vector<KnownPool>> PostgresBackend::pools() {
  const Rows rows =
      TRY(query(Query("SELECT pool_id, endpoint, draining, orders FROM pools ORDER BY pool_id COLLATE \"C\"")));
  return rows.read([](const Values& values) {
    std::vector<KnownPool> pools;
    for (int i = 0; i < values.count(); ++i) {
      pools.push_back({base::PoolId(values.text(i, 0)), values.text(i, 1),
                       read_desired_state(values.integer(i, 2) != 0, values.optional_text(i, 3))});
    }
    return pools;
  });
}

base::Result<std::vector<core::sessions::RestoredSession>> PostgresBackend::sessions() {
  const Rows rows = TRY(query(
      Query("SELECT s.session_key, s.session_id, s.created_at, s.touched_at, s.token_budget, s.time_budget_ms, "
            "s.cost_budget_nano, s.prompt_token_cost_nano, s.output_token_cost_nano, s.turns + count(j.job_id), "
            "s.tokens_in + coalesce(sum(" LLORCH_COUNT(
                "j.tokens_in") ") FILTER (WHERE j.completed_at IS NOT NULL AND j.attempts > 0), "
                               "0)::bigint, "
                               "s.tokens_out + coalesce(sum(" LLORCH_COUNT(
                                   "j.tokens_generated") ") FILTER (WHERE j.completed_at IS NOT NULL), 0)::bigint, "
                                                         "s.decode_time_ms + coalesce(sum(" LLORCH_COUNT(
                                                             "j.decode_time_ms") ") FILTER (WHERE j.completed_at IS "
                                                                                 "NOT NULL), 0)::bigint, "
                                                                                 "coalesce(max(j.created_at), 0), "
                                                                                 "coalesce(max(j.completed_at), 0) "
                                                                                 "FROM sessions s LEFT JOIN jobs j ON "
                                                                                 "j.session_key = s.session_key "
                                                                                 "GROUP BY s.session_key ORDER BY "
                                                                                 "s.created_at, s.session_key")));
  return rows.read([](const Values& values) {
    std::vector<core::sessions::RestoredSession> sessions;
    for (int i = 0; i < values.count(); ++i) sessions.push_back(read_session(RowView{values, i}));
    return sessions;
  });
}

base::Result<std::vector<core::sessions::TenantUse>> PostgresBackend::tenants(std::int64_t ended_from_unix_ms) {
  Query by_tenant(LLORCH_TENANT_USE("$1"));
  const Rows rows = TRY(query(std::move(by_tenant.add(ended_from_unix_ms))));
  return rows.read([](const Values& values) {
    std::vector<core::sessions::TenantUse> tenants;
    for (int i = 0; i < values.count(); ++i) tenants.push_back({values.text(i, 0), values.integer(i, 1)});
    return tenants;
  });
}

}  // namespace

base::Result<std::unique_ptr<Backend>> open_backend(ServerOptions options) {
  auto backend = std::make_unique<PostgresBackend>(std::move(options));
  TRY(backend->open());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace llorch::orchestratord::store::postgres
