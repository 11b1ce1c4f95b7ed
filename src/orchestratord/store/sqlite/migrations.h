#pragma once
// The schema, version by version. The files in contracts/sql are the source; the build embeds them.
#include <cstdint>
#include <span>

#include "base/result.h"
#include "orchestratord/store/rows/migration.h"

namespace llorch::orchestratord::store::sqlite {

class Database;

// In ascending order, versions 1, 2, 3, ...
std::span<const Migration> migrations();

// Whether migrate() could go on from what `database` has; changes nothing. Errors as below, and CORRUPT_FILE for a database
// without a schema or with damaged pages.
base::Result<> check_schema(Database& database, std::span<const Migration> migrations);

// What migrate() would go on from; changes nothing. Errors: as of migrate().
base::Result<FoundSchema> find_schema(Database& database, std::span<const Migration> migrations);

// Applies what is missing, each version in a transaction of its own. UNSUPPORTED_FORMAT_VERSION: the file was written by
// a newer program. CORRUPT_FILE: an applied migration is not the one this program knows. Returns when the schema was made.
base::Result<std::int64_t> migrate(Database& database, std::span<const Migration> migrations, std::int64_t now_unix_ms);

}  // namespace llorch::orchestratord::store::sqlite
