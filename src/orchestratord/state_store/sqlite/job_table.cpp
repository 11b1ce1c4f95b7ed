#include "orchestratord/state_store/sqlite/job_table.h"

#include <bit>

#include "contract/json.h"
#include "orchestratord/state_store/rows/job_row.h"
#include "orchestratord/state_store/rows/pool_row.h"

namespace llorch::orchestratord::state_store::sqlite {
namespace {

base::Result<std::optional<JobRecord>> read_one(Database& database, const char* sql, std::string_view key) {
  const StatementUse row(*TRY(database.statement(sql)));
  row->bind(1, key);
  if (!TRY(row->step())) return std::optional<JobRecord>();
  return std::optional<JobRecord>(TRY(read_job(*row)));
}

base::Result<> delete_rows_of(Database& database, const char* sql, const base::JobId& job_id) {
  Statement* statement = TRY(database.statement(sql));
  statement->bind(1, std::string_view(job_id.value));
  return statement->run();
}

}  // namespace

base::Result<bool> insert_job(Database& database, const JobRecord& job, const PayloadRow* payload) {
  Statement* insert = TRY(database.statement(
      "INSERT INTO jobs (job_id, task_id, session_id, correlation_id, request_hash, priority, model, model_ref, "
      "model_facts, prompt_hash, params, max_tokens, seed, on_disconnect, timeout_ms, deadline_ms, tokens_in, "
      "created_at, "
      "session_key, tenant_id, status, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "'queued', "
      "0) "
      "ON CONFLICT DO NOTHING"));
  insert->bind(1, std::string_view(job.job_id.value)).bind(2, std::string_view(job.task_id)).bind(3, job.session_id);
  insert->bind(4, std::string_view(job.correlation_id.value)).bind(5, std::string_view(job.request_sha256));
  insert->bind(6, contract::enum_name(job.priority)).bind(7, std::string_view(job.model));
  insert->bind(8, std::string_view(job.model_ref)).bind(9, std::string_view(contract::encode(job.facts)));
  insert->bind(10, std::string_view(job.prompt_sha256)).bind(11, std::string_view(job.params));
  insert->bind(12, job.max_tokens).bind(13, std::bit_cast<std::int64_t>(job.seed));
  insert->bind(14, contract::enum_name(job.on_disconnect)).bind(15, job.timeout_ms).bind(16, job.deadline_ms);
  insert->bind(17, job.tokens_in).bind(18, job.submitted_unix_ms).bind(19, job.session_key);
  insert->bind(20, std::string_view(job.tenant_id));
  TRY(insert->run());
  if (database.changes() == 0) return false;
  if (payload == nullptr) return true;
  Statement* sealed =
      TRY(database.statement("INSERT INTO job_payloads (arrival, key_slot, nonce, ciphertext) VALUES (?, ?, ?, ?)"));
  sealed->bind(1, database.last_rowid()).bind(2, std::int64_t{payload->key_slot});
  sealed->bind_blob(3, payload->nonce).bind_blob(4, payload->ciphertext);
  TRY(sealed->run());
  return true;
}

base::Result<Updated> update_job(Database& database, const Transition& transition) {
  const JobProgress& p = transition.progress;
  Statement* update = TRY(database.statement(
      "UPDATE jobs SET status = ?, attempts = ?, worker_id = coalesce(?, worker_id), pool_id = coalesce(?, pool_id), "
      "dispatched_at = coalesce(?, dispatched_at), started_at = coalesce(?, started_at), "
      "completed_at = coalesce(?, completed_at), tokens_generated = coalesce(?, tokens_generated), "
      "decode_time_ms = coalesce(?, decode_time_ms), outcome = ?, "
      "stop_reason = ?, error_code = ?, last_error = ?, terminal_event = ?, last_event_id = ?, "
      "worker_version = coalesce(?, worker_version) "
      "WHERE job_id = ? AND completed_at IS NULL"));
  update->bind(1, contract::enum_name(p.status)).bind(2, p.attempts).bind(3, p.worker_id).bind(4, p.pool_id);
  update->bind(5, p.dispatched_unix_ms).bind(6, p.started_unix_ms).bind(7, p.finished_unix_ms).bind(8, p.tokens_out);
  update->bind(9, p.decode_time_ms).bind(10, outcome_of(p));
  update->bind(11, p.end ? std::optional(std::string(contract::enum_name(p.end->stop_reason))) : std::nullopt);
  update->bind(12, p.error ? std::optional(p.error->code) : std::nullopt);
  update->bind(13, p.error ? std::optional(p.error->message) : std::nullopt);
  update->bind(14, terminal_event_of(p)).bind(15, p.last_event_id).bind(16, p.worker_version);
  update->bind(17, std::string_view(transition.job_id.value));
  TRY(update->run());
  if (database.changes() == 0) {
    return TRY(find_job(database, transition.job_id)) ? Updated::kTerminal : Updated::kMissing;
  }
  if (!contract::is_terminal(p.status)) return Updated::kDone;
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
      "?5"));
  upsert->bind(1, std::string_view(checkpoint.job_id.value)).bind(2, checkpoint.seq);
  upsert->bind(3, std::string_view(checkpoint.event)).bind(4, std::string_view(checkpoint.prefix_hash));
  upsert->bind(5, checkpoint.unix_ms);
  return upsert->run();
}

base::Result<std::int64_t> delete_finished(Database& database, const Retention& retention) {
  Statement* remove = TRY(database.statement(
      "DELETE FROM jobs WHERE arrival IN (SELECT j.arrival FROM jobs j WHERE j.completed_at < ? AND NOT EXISTS "
      "(SELECT 1 FROM sessions s WHERE s.session_key = j.session_key) LIMIT ?)"));
  remove->bind(1, retention.finished_before_unix_ms).bind(2, retention.count_max);
  TRY(remove->run());
  return database.changes();
}

base::Result<std::optional<JobRecord>> find_job(Database& database, const base::JobId& job_id) {
  return read_one(database, "SELECT " LLORCH_JOB_COLUMNS "FROM jobs j WHERE j.job_id = ?", job_id.value);
}

base::Result<std::optional<JobRecord>> find_job_by_task(Database& database, std::string_view task_id) {
  return read_one(database, "SELECT " LLORCH_JOB_COLUMNS "FROM jobs j WHERE j.task_id = ?1 OR j.job_id = ?1", task_id);
}

base::Result<std::vector<JobRecord>> newest_jobs(Database& database, const Listing& listing) {
  // The second condition is that of the index jobs_of_tenants.
  const StatementUse row(*TRY(database.statement(
      listing.tenant_id ? "SELECT " LLORCH_JOB_COLUMNS
                          "FROM jobs j WHERE j.tenant_id = ?2 AND instr(j.task_id, ':') > 0"
                          " ORDER BY j.arrival DESC LIMIT ?1"
                        : "SELECT " LLORCH_JOB_COLUMNS "FROM jobs j ORDER BY j.arrival DESC LIMIT ?1")));
  row->bind(1, listing.count_max);
  if (listing.tenant_id) row->bind(2, std::string_view(*listing.tenant_id));
  std::vector<JobRecord> jobs;
  while (TRY(row->step())) jobs.push_back(TRY(read_job(*row)));
  return jobs;
}

base::Result<std::vector<LiveJob>> live_jobs(Database& database) {
  const StatementUse row(
      *TRY(database.statement(
          "SELECT " LLORCH_JOB_COLUMNS ", p.key_slot, p.nonce, p.ciphertext FROM jobs j "
          "LEFT JOIN job_payloads p ON p.arrival = j.arrival WHERE j.completed_at IS NULL ORDER BY j.arrival")));
  std::vector<LiveJob> jobs;
  while (TRY(row->step())) {
    LiveJob live{TRY(read_job(*row)), std::nullopt};
    if (const auto slot = row->optional_integer(kJobColumns)) {
      live.payload =
          PayloadRow{static_cast<std::uint32_t>(*slot), row->text(kJobColumns + 1), row->text(kJobColumns + 2)};
    }
    jobs.push_back(std::move(live));
  }
  return jobs;
}

base::Result<std::vector<sessions::TenantUse>> tenant_use(Database& database, std::int64_t ended_from_unix_ms) {
  const StatementUse row(*TRY(database.statement(LLORCH_TENANT_USE("?1"))));
  row->bind(1, ended_from_unix_ms);
  std::vector<sessions::TenantUse> tenants;
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

base::Result<> set_orders(Database& database, const KnownPool& pool, std::int64_t now_unix_ms) {
  if (!pool.endpoint.empty()) TRY(upsert_pool(database, pool, now_unix_ms));
  Statement* update = TRY(database.statement("UPDATE pools SET draining = ?, orders = ? WHERE pool_id = ?"));
  update->bind(1, std::int64_t{pool.orders.draining}).bind(2, orders_column(pool.orders));
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
        {base::PoolId(row->text(0)), row->text(1), read_orders(row->integer(2) != 0, row->optional_text(3))});
  }
  return pools;
}

}  // namespace llorch::orchestratord::state_store::sqlite
