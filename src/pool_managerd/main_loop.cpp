#include "pool_managerd/main_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/assert.h"

namespace llorch::pool_managerd {

MainLoop::MainLoop() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { ASSERT(wake_fd_ >= 0, "eventfd: {}", errno); }

MainLoop::~MainLoop() { close(wake_fd_); }

void MainLoop::post(std::function<void()> fn) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(fn));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t woken = write(wake_fd_, &one, sizeof one);  // full means that it is awake already
}

void MainLoop::watch(int fd, std::function<void()> fn) { watched_[fd] = std::move(fn); }

void MainLoop::unwatch(int fd) { watched_.erase(fd); }

void MainLoop::run_posted() {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t drained = read(wake_fd_, &count, sizeof count);
  std::vector<std::function<void()>> batch;
  {
    const std::lock_guard lock(mutex_);
    batch.swap(posted_);
  }
  for (auto& fn : batch) {
    if (stopped_) return;
    fn();
  }
}

void MainLoop::drop_posted() {
  std::vector<std::function<void()>> dropped;  // destroyed after the lock is let go
  const std::lock_guard lock(mutex_);
  dropped.swap(posted_);
}

void MainLoop::run(const std::function<std::optional<std::int64_t>()>& turn) {
  while (!stopped_) {
    const std::optional<std::int64_t> wait_ms = turn();
    if (stopped_) return;
    std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
    for (const auto& [fd, fn] : watched_) fds.push_back({fd, POLLIN, 0});
    const int timeout =
        wait_ms ? static_cast<int>(std::clamp<std::int64_t>(*wait_ms, 0, std::numeric_limits<int>::max())) : -1;
    const int ready = poll(fds.data(), fds.size(), timeout);
    ASSERT(ready >= 0 || errno == EINTR, "poll: {}", errno);
    if (ready <= 0) continue;
    for (std::size_t i = 1; i < fds.size(); ++i) {
      const auto it = watched_.find(fds[i].fd);  // an earlier one of this round may have unwatched it
      if (fds[i].revents == 0 || it == watched_.end()) continue;
      const auto fn = it->second;
      fn();
    }
    run_posted();
  }
}

}  // namespace llorch::pool_managerd
