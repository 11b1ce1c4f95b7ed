#pragma once
// The Store over SQLite: one thread, one connection, group commit.
#include <filesystem>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/entropy.h"
#include "orchestratord/state_store/payload/payload_keys.h"
#include "orchestratord/state_store/store.h"

namespace llorch::orchestratord::state_store {

struct SqliteStoreOptions {
  std::filesystem::path directory;
  std::int64_t retention_ms = 7LL * 24 * 3600 * 1000;  // of finished jobs
  const base::Clock* clock = nullptr;                  // REQUIRES not null; outlives the store
  base::Entropy* entropy = nullptr;                    // REQUIRES not null; outlives the store; used on its thread only
  // Seams for faults; the defaults are the operating system.
  std::string sqlite_vfs;
  std::function<base::Result<std::unique_ptr<payload::KeyFile>>(const std::filesystem::path&)> open_keys =
      payload::open_key_file;
};

// Creates or opens DIRECTORY/orchestrator.db and DIRECTORY/payload.keys, migrates, overwrites keys no live job owns,
// removes jobs past their retention. REQUIRES: the caller holds the directory's lock (see lock_state_directory).
// Errors: STORE_UNAVAILABLE, CORRUPT_FILE, UNSUPPORTED_FORMAT_VERSION, VERSION_MISMATCH.
base::Result<std::unique_ptr<Store>> open_sqlite_store(SqliteStoreOptions options);

// Held as long as the value lives; the kernel drops it with the process.
class StateDirectoryLock {
 public:
  explicit StateDirectoryLock(int fd) : fd_(fd) {}
  StateDirectoryLock(StateDirectoryLock&& other) noexcept;
  StateDirectoryLock& operator=(StateDirectoryLock&& other) noexcept;
  ~StateDirectoryLock();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};
// Creates the directory (mode 0700) if it is missing and locks it. ALREADY_RUNNING, STORE_UNAVAILABLE.
base::Result<StateDirectoryLock> lock_state_directory(const std::filesystem::path& directory);

}  // namespace llorch::orchestratord::state_store
