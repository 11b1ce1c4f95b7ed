#include "orchestratord/store/sqlite/migrations.h"

#include <vector>

#include "orchestratord/store/sqlite/database.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

base::Result<> apply(Database& database, const Migration& migration, std::int64_t now_unix_ms) {
  TRY(database.execute(std::string(migration.sql)));
  Statement* insert = TRY(database.statement("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)"));
  insert->bind(1, migration.version).bind(2, migration.name);
  insert->bind(3, std::string_view(fingerprint(migration))).bind(4, now_unix_ms);
  return insert->run();
}

base::Result<std::vector<AppliedMigration>> read_applied(Database& database) {
  std::vector<AppliedMigration> rows;
  const StatementUse row(
      *TRY(database.statement("SELECT version, sha256, applied_at FROM schema_migrations ORDER BY version")));
  while (TRY(row->step())) rows.push_back({row->integer(0), row->text(1), row->integer(2)});
  return rows;
}

}  // namespace

base::Result<> check_schema(Database& database, std::span<const Migration> known) {
  const StatementUse check(*TRY(database.statement("PRAGMA quick_check(1)")));
  const bool intact = TRY(check->step()) && check->text(0) == "ok";
  const auto rows = read_applied(database);
  if (!intact || !rows || rows->empty()) {
    return base::fail(base::ErrorCode::kCorruptFile, "the database of the job store is damaged or empty");
  }
  TRY(applied_count(known, *rows));
  return {};
}

base::Result<FoundSchema> find_schema(Database& database, std::span<const Migration> known) {
  const StatementUse table(*TRY(database.statement("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")));
  if (!TRY(table->step())) return FoundSchema{};
  return found_schema(known, TRY(read_applied(database)));
}

base::Result<std::int64_t> migrate(Database& database, std::span<const Migration> known, std::int64_t now_unix_ms) {
  TRY(
      database.execute("CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
                       "sha256 TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"));
  const std::vector<AppliedMigration> rows = TRY(read_applied(database));
  for (std::size_t applied = TRY(applied_count(known, rows)); applied < known.size(); ++applied) {
    TRY(database.execute("BEGIN IMMEDIATE"));
    if (auto done = apply(database, known[applied], now_unix_ms); !done) {
      (void)database.execute("ROLLBACK");  // the failure that matters is the first one
      return base::fail(std::move(done).error());
    }
    TRY(database.execute("COMMIT"));
  }
  return rows.empty() ? now_unix_ms : rows.front().applied_unix_ms;
}

}  // namespace llorch::orchestratord::store::sqlite
