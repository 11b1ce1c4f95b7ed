#pragma once
// The SQL of jobs, models, receipts, job_payloads, sse_checkpoints, tenant_use and pools; sessions have session_table.h. Every function runs inside
// the caller's transaction.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "orchestratord/store/backend.h"
#include "orchestratord/store/sqlite/database.h"

namespace llorch::orchestratord::store::sqlite {

// False: the job_id or task_id is taken, and nothing is written. `payload` null: not spooled.
base::Result<bool> insert_job(Database& database, const JobRecord& job, const PayloadRow* payload);
// Also drops payload and checkpoint of a finished job, and tells whose record it is and what that counts as.
enum class Updated { kDone, kMissing, kTerminal };
base::Result<Updated> update_job(Database& database, Update& update);
base::Result<> upsert_checkpoint(Database& database, const Checkpoint& checkpoint);
base::Result<> remove_finished(Database& database, Removal& removal);
base::Result<FinishedJobs> finished_jobs(Database& database);

base::Result<std::optional<JobRecord>> find_job(Database& database, const base::JobId& job_id);
base::Result<std::optional<JobRecord>> find_job_by_task(Database& database, std::string_view task_id);
base::Result<std::vector<JobRecord>> newest_jobs(Database& database, const Listing& listing);
base::Result<std::vector<LiveJob>> live_jobs(Database& database);
base::Result<std::vector<core::sessions::TenantUse>> tenant_use(Database& database, std::int64_t ended_from_unix_ms);

// Leaves the desired state of a known pool as it is; set_desired_state writes it.
base::Result<> upsert_pool(Database& database, const KnownPool& pool, std::int64_t now_unix_ms);
base::Result<> set_desired_state(Database& database, const KnownPool& pool, std::int64_t now_unix_ms);
base::Result<> delete_pool(Database& database, const base::PoolId& pool_id);
base::Result<std::vector<KnownPool>> known_pools(Database& database);

}  // namespace llorch::orchestratord::store::sqlite
