#include "orchestratord/store/sqlite/backend.h"

#include "orchestratord/store/sqlite/copy.h"
#include "orchestratord/store/sqlite/job_table.h"
#include "orchestratord/store/sqlite/session_table.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

using base::ErrorCode;

// Free pages that stay for what is written next: 4 MiB.
constexpr std::int64_t kSparePages = 1024;

struct WriteNote {
  Database& database;
  base::Result<> operator()(const std::vector<Checkpoint>& checkpoints) const {
    for (const Checkpoint& checkpoint : checkpoints) TRY(upsert_checkpoint(database, checkpoint));
    return {};
  }
  base::Result<> operator()(const PoolSeen& seen) const { return upsert_pool(database, seen.pool, seen.unix_ms); }
  base::Result<> operator()(const PoolDesired& set) const { return set_desired_state(database, set.pool, set.unix_ms); }
  base::Result<> operator()(const PoolGone& gone) const { return delete_pool(database, gone.pool_id); }
  base::Result<> operator()(const core::sessions::SessionRecord& session) const {
    return upsert_session(database, session);
  }
  base::Result<> operator()(const SessionGone& gone) const { return delete_session(database, gone.session_key); }
};

// A transaction in doubt is rolled back in this connection, which holds the file alone: a repeated change finds the rows
// as they were before it.
class SqliteBackend final : public Backend {
 public:
  explicit SqliteBackend(Database database) : database_(std::move(database)) {}

  Ended commit(Changes changes) override {
    return database_.transaction([&] { return write(changes); });
  }
  base::Result<FinishedJobs> finished_jobs() override { return sqlite::finished_jobs(database_); }
  base::Result<std::int64_t> record_bytes(std::int64_t payload_bytes, std::int64_t) override {
    const Pages pages = TRY(database_.pages());
    return (pages.count - pages.free_count) * pages.bytes - payload_bytes;
  }
  base::Result<bool> give_back_space() override;
  base::Result<std::optional<JobRecord>> find(const base::JobId& job_id) override {
    return find_job(database_, job_id);
  }
  base::Result<std::optional<JobRecord>> find_task(const std::string& id) override {
    return find_job_by_task(database_, id);
  }
  base::Result<std::vector<JobRecord>> newest(const Listing& listing) override {
    return newest_jobs(database_, listing);
  }
  base::Result<std::vector<LiveJob>> live_jobs() override { return sqlite::live_jobs(database_); }
  base::Result<std::vector<KnownPool>> pools() override { return known_pools(database_); }
  base::Result<std::vector<core::sessions::RestoredSession>> sessions() override { return all_sessions(database_); }
  base::Result<std::vector<core::sessions::TenantUse>> tenants(std::int64_t ended_from_unix_ms) override {
    return tenant_use(database_, ended_from_unix_ms);
  }
  base::Result<std::unique_ptr<DatabaseCopy>> copy_into(const std::string& path) override {
    return TRY(Copy::begin(database_, {.path = path, .vfs = {}}));
  }
  void close() override {
    (void)database_.execute("PRAGMA wal_checkpoint(TRUNCATE)");  // what fails here the next start finds in the log
  }

 private:
  base::Result<> write(Changes& changes);

  Database database_;
};

base::Result<> SqliteBackend::write(Changes& changes) {
  for (Insert& insert : changes.inserts) {
    insert.result = {};
    if (TRY(insert_job(database_, *insert.job, insert.payload))) {
      if (insert.session != nullptr) TRY(upsert_session(database_, *insert.session));
      continue;
    }
    insert.result = base::fail(ErrorCode::kConflict, "a job with this job_id or task_id exists");
  }
  for (Update& update : changes.updates) {
    update.result = {};
    switch (TRY(update_job(database_, update))) {
      case Updated::kDone: break;
      case Updated::kMissing: update.result = base::fail(ErrorCode::kNotFound, "the job store has no such job"); break;
      case Updated::kTerminal:
        update.result = base::fail(ErrorCode::kConflict, "the job already has its terminal state");
        break;
    }
  }
  for (const Note& note : changes.notes) TRY(std::visit(WriteNote{database_}, note));
  if (changes.removal != nullptr) TRY(remove_finished(database_, *changes.removal));
  return {};
}

base::Result<bool> SqliteBackend::give_back_space() {
  const Pages pages = TRY(database_.pages());
  if (pages.free_count <= kSparePages) return false;
  TRY(database_.execute("PRAGMA incremental_vacuum(64)"));
  return pages.free_count - 64 > kSparePages;
}

}  // namespace

std::unique_ptr<Backend> make_backend(Database database) {
  return std::make_unique<SqliteBackend>(std::move(database));
}

}  // namespace llorch::orchestratord::store::sqlite
