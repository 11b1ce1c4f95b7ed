#include "orchestratord/store/rows/migration.h"

#include <fmt/core.h>

#include "base/sha256.h"

namespace llorch::orchestratord::store {

std::string fingerprint(const Migration& migration) { return base::to_hex(base::sha256(migration.sql)); }

base::Result<std::size_t> applied_count(std::span<const Migration> known, std::span<const AppliedMigration> applied) {
  for (std::size_t i = 0; i < applied.size(); ++i) {
    if (i == known.size()) {
      return base::fail(base::ErrorCode::kUnsupportedFormatVersion,
                        fmt::format("the job store has schema version {}, this program knows up to {}; run the newer "
                                    "program or move the state directory away",
                                    applied[i].version, known.size()));
    }
    if (applied[i].version != known[i].version || applied[i].sha256 != fingerprint(known[i])) {
      return base::fail(base::Error{
          base::ErrorCode::kCorruptFile,
          fmt::format("schema version {} of the job store is not the one this program was built with; run the program "
                      "that made the "
                      "store, or move the state directory away",
                      applied[i].version),
          {}}.with("schema_version", applied[i].version));
    }
  }
  return applied.size();
}

base::Result<FoundSchema> found_schema(std::span<const Migration> known, std::span<const AppliedMigration> applied) {
  FoundSchema found{TRY(applied_count(known, applied)), std::nullopt};
  if (!applied.empty()) found.made_unix_ms = applied.front().applied_unix_ms;
  return found;
}

}  // namespace llorch::orchestratord::store
