#pragma once
// The StoreCore over SQLite: one connection, one transaction per group.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/entropy.h"
#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/live_check.h"
#include "orchestratord/store/store_core.h"

namespace llorch::orchestratord::store {

struct SqliteStoreOptions {
  std::filesystem::path directory;
  RetentionLimits retention;
  const base::Clock* clock = nullptr;  // REQUIRES not null; outlives the store
  base::Entropy* entropy = nullptr;    // REQUIRES not null; outlives the store; used on its thread only
  // The log is moved into the database when it holds this many pages.
  std::int64_t checkpoint_pages = 1000;
  bool take_over = false;  // see KeyOwner::check
  // What it refuses the open refuses; the database has not been changed then.
  std::function<base::Result<>()> before_migration{};
  CheckLiveJob check_live_job{};  // asked of each where a migration is due, ahead of it; null: of none
  // Seams for faults; the defaults are the operating system.
  std::string sqlite_vfs;
  files::OpenFile open_file = files::open_state_file;
};

// Creates or opens DIRECTORY/orchestrator.db and DIRECTORY/payload.keys, migrates, overwrites keys no live job owns,
// removes jobs past their retention. REQUIRES: the caller holds the directory's lock (see lock_state_directory).
// Errors: CONFLICT (see KeyOwner::check), STORE_UNAVAILABLE, CORRUPT_FILE, UNSUPPORTED_FORMAT_VERSION, VERSION_MISMATCH.
base::Result<std::unique_ptr<StoreCore>> open_sqlite_core(SqliteStoreOptions options);

}  // namespace llorch::orchestratord::store
