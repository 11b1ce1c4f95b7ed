#include "orchestratord/store/sqlite_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/state_directory.h"
#include "orchestratord/store/store_thread.h"

namespace llorch::orchestratord::store {

using base::ErrorCode;

base::Result<std::unique_ptr<Store>> open_sqlite_store(SqliteStoreOptions options) {
  const base::Clock& clock = *options.clock;
  return start_store_thread(TRY(open_sqlite_core(std::move(options))), clock);
}

StateDirectoryLock::StateDirectoryLock(StateDirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
StateDirectoryLock& StateDirectoryLock::operator=(StateDirectoryLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
StateDirectoryLock::~StateDirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

base::Result<StateDirectoryLock> lock_state_directory(const std::filesystem::path& directory) {
  const auto unavailable = [](base::Error error) {
    error.code = ErrorCode::kStoreUnavailable;
    error.message += "; give --state-dir a directory this user may write";
    return base::fail(std::move(error));
  };
  if (auto made = base::ensure_state_directory(directory); !made) {
    if (made.error().code == ErrorCode::kForbidden) return base::fail(std::move(made).error());
    return unavailable(std::move(made).error());
  }
  const std::filesystem::path path = directory / "orchestrator.lock";
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  StateDirectoryLock lock(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0600));
  if (lock.fd() >= 0) {
    if (auto given = base::give_to_owner_of(directory, lock.fd()); !given) return unavailable(std::move(given).error());
  } else {
    lock = StateDirectoryLock(::open(path.c_str(), kFlags | O_CREAT, 0600));
  }
  const int fd = lock.fd();
  if (fd < 0) return unavailable(base::io_error("cannot open", path, errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return unavailable(base::io_error("cannot lock", path, errno));
    return base::fail(ErrorCode::kAlreadyRunning,
                      fmt::format("another orchestratord owns the state directory {}; stop it or give --state-dir",
                                  directory.string()));
  }
  return lock;
}

}  // namespace llorch::orchestratord::store
