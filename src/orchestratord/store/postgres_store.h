#pragma once
// The Store over a PostgreSQL server: the rows there, the keys of live payloads in the local state directory.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/entropy.h"
#include "orchestratord/store/live_check.h"
#include "orchestratord/store/store.h"

namespace llorch::orchestratord::store {

struct PostgresStoreOptions {
  std::string conninfo;  // as libpq takes it; empty: libpq's own variables. Never logged, never in an error
  // What it is now, asked before every later connect: a password may have changed meanwhile. Null, or where it fails: it stays.
  std::function<base::Result<std::string>()> read_conninfo{};
  std::filesystem::path directory;  // of payload.keys
  RetentionLimits retention;
  const base::Clock* clock = nullptr;               // REQUIRES not null; outlives the store
  base::Entropy* entropy = nullptr;                 // REQUIRES not null; outlives the store; used on its thread only
  std::chrono::milliseconds lock_wait{15'000};      // for the end of a former owner's session
  std::chrono::milliseconds reply_timeout{10'000};  // a server that is silent for longer counts as gone
  std::function<void()> on_taken_over;              // on the store's thread: this store will never commit again
  bool take_over = false;                           // see KeyOwner::check
  // What it refuses the open refuses; the database has not been changed then.
  std::function<base::Result<>()> before_migration{};
  CheckLiveJob check_live_job{};  // asked of each where a migration is due, ahead of it; null: of none
};

// Opens DIRECTORY/payload.keys, connects, takes the store's lock, migrates the schema, overwrites keys no live job owns. DIRECTORY/store_id
// says that it is the same directory as before. REQUIRES: the caller holds the directory's lock. Errors: ALREADY_RUNNING (another
// orchestratord owns the database), CONFLICT (see KeyOwner::check), STORE_UNAVAILABLE, CONFIG_INVALID, CORRUPT_FILE,
// UNSUPPORTED_FORMAT_VERSION, VERSION_MISMATCH.
base::Result<std::unique_ptr<Store>> open_postgres_store(PostgresStoreOptions options);

}  // namespace llorch::orchestratord::store
