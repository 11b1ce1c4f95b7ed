#include "orchestratord/store/postgres/migrations.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "orchestratord/store/postgres/connection.h"

namespace llorch::orchestratord::store::postgres {
namespace {

constexpr std::chrono::milliseconds kVacuumMax = std::chrono::minutes(2);

base::Result<> apply(Connection& connection, const Migration& migration, std::int64_t now_unix_ms) {
  // A statement that writes every row anew takes as long as that takes; one that waits for somebody's lock does not wait for ever.
  const ReplyTimeout none(connection, std::nullopt);
  TRY(connection.execute("BEGIN"));
  TRY(connection.execute("SET LOCAL lock_timeout = '60s'"));
  TRY(connection.execute(std::string(migration.sql)));
  Query insert("INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES ($1, $2, $3, $4)");
  insert.add(migration.version).add(migration.name).add(std::string_view(fingerprint(migration))).add(now_unix_ms);
  TRY(connection.query(std::move(insert)));
  return connection.execute("COMMIT");
}

base::Result<std::vector<AppliedMigration>> read_applied(Connection& connection) {
  const Rows rows =
      TRY(connection.query(Query("SELECT version, sha256, applied_at FROM schema_migrations ORDER BY version")));
  return rows.read([](const Values& values) {
    std::vector<AppliedMigration> applied;
    for (int i = 0; i < values.count(); ++i) {
      applied.push_back({values.integer(i, 0), values.text(i, 1), values.integer(i, 2)});
    }
    return applied;
  });
}

// Where a migration has written the table anew, its visibility map is empty, and the server's own vacuum does not count that as a change. A
// count from an index reads each row until then, and with some 10 GB may pass its time limit at each start. Decided by what the server says
// of the table, so that a process that ended behind the migration leaves nothing undone. A start waits for kVacuumMax; of what was looked
// through by then the server keeps note, and the next start goes on behind it. REQUIRES: no transaction is open.
base::Result<> vacuum_rewritten(Connection& connection) {
  const Rows rewritten = TRY(connection.query(
      Query("SELECT count(*) FROM pg_class WHERE oid = to_regclass('llorch.jobs') AND relpages > 0 AND "
            "relallvisible = 0")));
  if (TRY(rewritten.read(first_integer)) == 0) return {};
  base::log_event(base::LogLevel::kInfo, "store.vacuuming", {},
                  "The table of jobs was written anew; the server looks through it.");
  const ReplyTimeout none(connection, std::nullopt);
  TRY(connection.execute("SET statement_timeout = " + std::to_string(kVacuumMax.count())));
  if (auto done = connection.execute("VACUUM (ANALYZE, SKIP_LOCKED) llorch.jobs"); !done) {
    base::log_event(base::LogLevel::kWarn, "store.vacuum_failed", {},
                    "The table of jobs was not looked through to its end; the next start tries again.",
                    {{"error", done.error().message}, {"limit_ms", kVacuumMax.count()}});
  }
  return connection.execute("SET statement_timeout = 0");
}

}  // namespace

base::Result<FoundSchema> find_schema(Connection& connection, std::span<const Migration> known) {
  const Rows table =
      TRY(connection.query(Query("SELECT (to_regclass('llorch.schema_migrations') IS NOT NULL)::int::bigint")));
  if (TRY(table.read(first_integer)) == 0) return FoundSchema{};
  return found_schema(known, TRY(read_applied(connection)));
}

base::Result<std::int64_t> migrate(Connection& connection, std::span<const Migration> known, std::int64_t now_unix_ms) {
  // Asked first: a role that may not create schemas can use one that is there.
  const Rows schema = TRY(connection.query(Query("SELECT oid::bigint FROM pg_namespace WHERE nspname = 'llorch'")));
  if (schema.count() == 0) TRY(connection.execute("CREATE SCHEMA llorch"));
  TRY(connection.execute(
      "CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, "
      "sha256 TEXT NOT NULL, applied_at BIGINT NOT NULL)"));
  const std::vector<AppliedMigration> applied = TRY(read_applied(connection));
  for (std::size_t i = TRY(applied_count(known, applied)); i < known.size(); ++i) {
    if (!applied.empty()) {
      base::log_event(base::LogLevel::kInfo, "store.migrating", {}, "The schema of the job store becomes a newer one.",
                      {{"version", known[i].version}, {"name", known[i].name}});
    }
    if (auto done = apply(connection, known[i], now_unix_ms); !done) {
      (void)connection.execute("ROLLBACK");  // the failure that matters is the first one
      return base::fail(std::move(done).error());
    }
  }
  TRY(vacuum_rewritten(connection));
  return applied.empty() ? now_unix_ms : applied.front().applied_unix_ms;
}

}  // namespace llorch::orchestratord::store::postgres
