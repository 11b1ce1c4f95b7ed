#include "orchestratord/store/sqlite/sqlite_core.h"

#include "base/assert.h"
#include "base/log.h"
#include "orchestratord/store/group_core.h"
#include "orchestratord/store/key_owner.h"
#include "orchestratord/store/rows/payload_row.h"
#include "orchestratord/store/sqlite/backend.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/sqlite/job_table.h"
#include "orchestratord/store/sqlite/migrations.h"

namespace llorch::orchestratord::store {
namespace {

constexpr const char* kKind = "SQLite";

base::Result<> check_keys(const KeyOwner& key_owner, sqlite::Database& database) {
  const FoundSchema schema = TRY(sqlite::find_schema(database, sqlite::migrations()));
  // Rows of an older schema are not read: it is older than the record that names another store.
  const auto payloads = [&]() -> base::Result<std::vector<SealedPayload>> {
    std::vector<SealedPayload> sealed;
    if (schema.applied_count < sqlite::migrations().size()) return sealed;
    for (LiveJob& live : TRY(sqlite::live_jobs(database))) {
      if (live.payload) sealed.push_back({live.job.job_id.value, *std::move(live.payload)});
    }
    return sealed;
  };
  return key_owner.check(
      {.kind = kKind, .made_unix_ms = schema.made_unix_ms, .owner = std::nullopt, .payloads = payloads});
}

constexpr std::size_t kPayloadsByArrival =
    6;  // the schema version that has a payload under its job's arrival; before, under its id

base::Result<> check_live_jobs(const CheckLiveJob& check, const KeyOwner& key_owner, sqlite::Database& database) {
  const FoundSchema schema = TRY(sqlite::find_schema(database, sqlite::migrations()));
  if (!check || schema.applied_count == 0 || schema.applied_count == sqlite::migrations().size()) return {};
  const sqlite::StatementUse row(*TRY(database.statement(
      schema.applied_count < kPayloadsByArrival
          ? "SELECT j.job_id, j.params, p.key_slot, p.nonce, p.ciphertext FROM jobs j "
            "LEFT JOIN job_payloads p ON p.job_id = j.job_id WHERE j.completed_at IS NULL ORDER BY j.arrival"
          : "SELECT j.job_id, j.params, p.key_slot, p.nonce, p.ciphertext FROM jobs j "
            "LEFT JOIN job_payloads p ON p.arrival = j.arrival WHERE j.completed_at IS NULL ORDER BY j.arrival")));
  while (TRY(row->step())) {
    FoundLiveJob job{base::JobId(row->text(0)), row->text(1), std::nullopt};
    if (auto payload = read_payload(*row, 2)) job.payload = key_owner.unsealed({job.job_id.value, *std::move(payload)});
    TRY(check(job));
  }
  return {};
}

}  // namespace

base::Result<std::unique_ptr<StoreCore>> open_sqlite_core(SqliteStoreOptions options) {
  ASSERT(options.clock != nullptr && options.entropy != nullptr);
  const sqlite::Library library = sqlite::loaded_library();
  TRY(sqlite::check_library(library));
  base::log_event(base::LogLevel::kInfo, "store.library", {}, "The jobs are in SQLite.",
                  {{"sqlite_version", library.version}, {"sqlite_threads", library.threads}});
  const std::filesystem::path path = options.directory / "orchestrator.db";
  TRY(options.open_file(path));  // its mode is also the one SQLite gives its log
  auto log = TRY(options.open_file(path.string() + "-wal"));
  TRY(files::write_again(*log));
  log.reset();
  auto database = TRY(sqlite::Database::open(
      {.path = path.string(), .vfs = options.sqlite_vfs, .checkpoint_pages = options.checkpoint_pages}));
  GroupCoreOptions core;
  core.keys = TRY(options.open_file(options.directory / "payload.keys"));
  KeyOwner key_owner = TRY(KeyOwner::open({.keys = core.keys.get(),
                                           .name = TRY(options.open_file(options.directory / KeyOwner::kFileName)),
                                           .place = options.directory.string(),
                                           .take_over = options.take_over}));
  TRY(check_keys(key_owner, database));
  if (options.before_migration) TRY(options.before_migration());
  TRY(check_live_jobs(options.check_live_job, key_owner, database));
  TRY(key_owner.record(kKind, TRY(sqlite::migrate(database, sqlite::migrations(), options.clock->now().unix_ms))));
  if (auto able = database.make_space_returnable(); !able) {
    base::log_event(base::LogLevel::kWarn, "store.space_stays", {},
                    "The job store keeps the space of removed jobs for later ones; the next start tries again.",
                    {{"error", able.error().message}});
  }
  core.backend = sqlite::make_backend(std::move(database));
  core.retention = options.retention;
  core.clock = options.clock;
  core.entropy = options.entropy;
  return open_group_core(std::move(core));
}

}  // namespace llorch::orchestratord::store
