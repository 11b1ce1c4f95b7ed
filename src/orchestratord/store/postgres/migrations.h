#pragma once
// The schema in PostgreSQL. The files in contracts/sql/postgresql are the source; the build embeds them.
#include <span>

#include "orchestratord/store/rows/migration.h"

namespace llorch::orchestratord::store::postgres {

class Connection;

// In ascending order, versions 1, 2, 3, ...
std::span<const Migration> migrations();

// What migrate() would go on from; changes nothing. Errors: see applied_count; STORE_UNAVAILABLE.
base::Result<FoundSchema> find_schema(Connection& connection, std::span<const Migration> migrations);

// Creates the schema `llorch` if it is missing, applies what is missing in it, each version in a transaction of its own. Its
// statements have no deadline, but wait for a lock of others for a minute at most. Has the server look at the table of jobs where that was
// written anew, so that records are counted from an index. Returns when the schema was made.
// REQUIRES: the session holds the store's lock. Errors: see applied_count; STORE_UNAVAILABLE.
base::Result<std::int64_t> migrate(Connection& connection, std::span<const Migration> migrations,
                                   std::int64_t now_unix_ms);

}  // namespace llorch::orchestratord::store::postgres
