#include "pool_managerd/state_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/run_file.h"
#include "base/state_directory.h"

namespace llorch::pool_managerd {

using base::ErrorCode;

StateLock::StateLock(std::filesystem::path directory, int fd) : directory_(std::move(directory)), fd_(fd) {}

StateLock::StateLock(StateLock&& other) noexcept
    : directory_(std::move(other.directory_)), fd_(std::exchange(other.fd_, -1)) {}

StateLock::~StateLock() {
  if (fd_ < 0) return;
  std::error_code ignored;
  std::filesystem::remove(directory_ / "pool-managerd.json", ignored);
  close(fd_);
}

base::Result<StateLock> StateLock::take(const std::filesystem::path& state_directory) {
  TRY(base::ensure_state_directory(state_directory));
  const auto directory = state_directory / "run";
  TRY(base::ensure_private_directory(directory));
  const auto file = directory / "pool-managerd.lock";
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return base::fail(base::io_error("open", file, errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error != EWOULDBLOCK) return base::fail(base::io_error("lock", file, error));
    return base::fail(ErrorCode::kAlreadyRunning,
                      fmt::format("another pool-managerd uses the state directory {}; stop it, or give this one a "
                                  "directory of its own with --state-dir",
                                  state_directory.string()));
  }
  return StateLock(directory, fd);
}

base::Result<> StateLock::announce(const std::string& bind) {
  return base::write_run_file(directory_ / "pool-managerd.json", bind);
}

}  // namespace llorch::pool_managerd
