#include "cli/stack/log_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/file.h"

namespace llorch::cli::stack {
namespace {

// Room for a burst while the disk is slow.
constexpr int kPipeBytes = 256 << 10;
constexpr std::size_t kHeardBytesMax = 64 << 10;

}  // namespace

base::Result<std::unique_ptr<LogPump>> LogPump::start(const std::filesystem::path& file,
                                                      base::RotatingFileLimits limits) {
  std::unique_ptr<LogPump> out(new LogPump(file, limits));
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return base::fail(base::io_error("cannot create", "pipe", errno));
  out->read_fd_ = fds[0];
  out->write_fd_ = fds[1];
  out->stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (out->stop_fd_ < 0) return base::fail(base::io_error("cannot create", "eventfd", errno));
  ::fcntl(out->read_fd_, F_SETFL, O_NONBLOCK);
  ::fcntl(out->read_fd_, F_SETPIPE_SZ, kPipeBytes);
  out->thread_ = std::thread([pump = out.get()] { pump->run(); });
  return out;
}

LogPump::~LogPump() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = ::write(stop_fd_, &one, sizeof one);
    thread_.join();
  }
  for (const int fd : {read_fd_, write_fd_, stop_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

std::string LogPump::tail() const {
  const std::lock_guard lock(mutex_);
  return tail_;
}

void LogPump::run() {
  pollfd fds[] = {{.fd = read_fd_, .events = POLLIN, .revents = 0}, {.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  for (;;) {
    if (::poll(fds, 2, -1) < 0) continue;  // EINTR
    while (read_some()) {
    }
    if (fds[1].revents != 0) return;
  }
}

// False when nothing waits. Our own write end keeps the pipe open.
bool LogPump::read_some() {
  char buffer[16384];
  const ssize_t got = ::read(read_fd_, buffer, sizeof buffer);
  if (got > 0) {
    const std::string_view bytes(buffer, static_cast<std::size_t>(got));
    file_.append(bytes);
    const std::lock_guard lock(mutex_);
    tail_ += bytes;
    if (tail_.size() > kHeardBytesMax) tail_.erase(0, tail_.size() - kHeardBytesMax);
  }
  return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace llorch::cli::stack
