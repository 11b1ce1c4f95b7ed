#include "orchestratord/state_store/sqlite/migrations.h"

#include <fmt/core.h>

#include "base/sha256.h"
#include "orchestratord/state_store/sqlite/database.h"

namespace llorch::orchestratord::state_store::sqlite {
namespace {

base::Result<> apply(Database& database, const Migration& migration, std::int64_t now_unix_ms) {
  TRY(database.execute(std::string(migration.sql)));
  Statement* insert = TRY(database.statement("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)"));
  insert->bind(1, migration.version).bind(2, migration.name);
  insert->bind(3, std::string_view(base::to_hex(base::sha256(migration.sql)))).bind(4, now_unix_ms);
  return insert->run();
}

}  // namespace

base::Result<> migrate(Database& database, std::span<const Migration> known, std::int64_t now_unix_ms) {
  TRY(
      database.execute("CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
                       "sha256 TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"));
  std::size_t applied = 0;
  {
    const StatementUse rows(*TRY(database.statement("SELECT version, sha256 FROM schema_migrations ORDER BY version")));
    while (TRY(rows->step())) {
      if (applied == known.size()) {
        return base::fail(base::ErrorCode::kUnsupportedFormatVersion,
                          fmt::format("the job store has schema version {}, this program knows up to {}; run the newer "
                                      "program or move the state directory away",
                                      rows->integer(0), known.size()));
      }
      const Migration& migration = known[applied];
      if (rows->integer(0) != migration.version || rows->text(1) != base::to_hex(base::sha256(migration.sql))) {
        return base::fail(base::ErrorCode::kCorruptFile,
                          fmt::format("schema version {} of the job store is not the one this program was built with",
                                      rows->integer(0)));
      }
      ++applied;
    }
  }
  for (; applied < known.size(); ++applied) {
    TRY(database.execute("BEGIN IMMEDIATE"));
    if (auto done = apply(database, known[applied], now_unix_ms); !done) {
      (void)database.execute("ROLLBACK");  // the failure that matters is the first one
      return base::fail(std::move(done).error());
    }
    TRY(database.execute("COMMIT"));
  }
  return {};
}

}  // namespace llorch::orchestratord::state_store::sqlite
