#pragma once
// The Store over SQLite: its core on a thread of its own. And the lock that makes this process the only one.
#include <filesystem>
#include <memory>

#include "orchestratord/store/sqlite/sqlite_core.h"
#include "orchestratord/store/store.h"

namespace llorch::orchestratord::store {

// See open_sqlite_core.
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

}  // namespace llorch::orchestratord::store
