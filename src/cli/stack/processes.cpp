#include "cli/stack/processes.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "base/file.h"
#include "base/run_file.h"

namespace llorch::cli::stack {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using Clock = std::chrono::steady_clock;

// A process that cannot be replaced by another one behind our back. By system call: glibc 2.36 declares the wrappers
// without C linkage.
class PidFd {
 public:
  explicit PidFd(int pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  ~PidFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  PidFd(const PidFd&) = delete;
  PidFd& operator=(const PidFd&) = delete;

  bool valid() const { return fd_ >= 0; }
  bool signal(int number) const { return ::syscall(SYS_pidfd_send_signal, fd_, number, nullptr, 0) == 0; }
  bool ended_within(std::chrono::milliseconds limit) const {
    const auto deadline = Clock::now() + limit;
    for (;;) {
      pollfd ended{.fd = fd_, .events = POLLIN, .revents = 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      const int n = ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
      if (n > 0) return true;
      if (n == 0 || errno != EINTR) return false;
    }
  }

 private:
  int fd_;
};

bool still_runs(const RunningProcess& process) { return base::recorded_process_runs(process.pid, process.start_ticks); }

std::optional<RunningProcess> read_record(const std::filesystem::path& path) {
  const auto text = base::read_file(path, 65536);
  if (!text) return std::nullopt;
  bj::error_code parse_error;
  const bj::value value = bj::parse(*text, parse_error);
  if (parse_error || !value.is_object()) return std::nullopt;
  const bj::object& record = value.get_object();
  const auto integer = [&](const char* key) -> std::int64_t {
    const auto* number = record.if_contains(key);
    return number != nullptr && number->is_int64() ? number->get_int64() : -1;
  };
  const std::int64_t pid = integer("pid"), ticks = integer("start_ticks");
  if (pid <= 0 || pid > std::numeric_limits<int>::max() || ticks < 0) return std::nullopt;
  const auto* bind = record.if_contains("bind");
  return RunningProcess{.name = path.stem().string(),
                        .pid = static_cast<int>(pid),
                        .start_ticks = static_cast<std::uint64_t>(ticks),
                        .bind = bind != nullptr && bind->is_string() ? std::string(bind->get_string()) : ""};
}

}  // namespace

std::vector<RunningProcess> running_processes(const std::filesystem::path& state_dir) {
  std::vector<RunningProcess> out;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(state_dir / "run", ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() != ".json") continue;
    auto record = read_record(it->path());
    if (record && still_runs(*record)) out.push_back(std::move(*record));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

base::Result<> check_records(const std::filesystem::path& state_dir) {
  std::error_code ec;
  const std::filesystem::directory_iterator records(state_dir / "run", ec);
  if (!ec || ec == std::errc::no_such_file_or_directory) return {};
  return base::fail(base::io_error("cannot look at what runs in", state_dir, ec.value()));
}

base::Result<> stop_process(const RunningProcess& process, const StopLimits& limits) {
  const PidFd fd(process.pid);
  if (!fd.valid() && errno != ESRCH) {
    return base::fail(ErrorCode::kIoError,
                      fmt::format("cannot reach {} (pid {}): {}", process.name, process.pid, std::strerror(errno)));
  }
  // Compared after the descriptor is held: from here on it stands for this process and no other.
  if (!fd.valid() || !still_runs(process)) return {};
  const std::pair<int, std::chrono::milliseconds> steps[] = {{SIGTERM, limits.terminate}, {SIGKILL, limits.kill}};
  for (const auto& [number, limit] : steps) {
    if (!fd.signal(number)) {
      if (errno == ESRCH) return {};
      return base::fail(ErrorCode::kIoError,
                        fmt::format("cannot stop {} (pid {}): {}", process.name, process.pid, std::strerror(errno)));
    }
    if (fd.ended_within(limit)) return {};
  }
  return base::fail(ErrorCode::kTimeout, fmt::format("{} (pid {}) still runs {} ms after SIGKILL", process.name,
                                                     process.pid, limits.kill.count()));
}

base::Result<> ask_to_reload(const RunningProcess& process) {
  const PidFd fd(process.pid);
  if (fd.valid() && still_runs(process) && fd.signal(SIGHUP)) return {};
  if (fd.valid() && errno == EPERM) {
    return base::fail(ErrorCode::kIoError, fmt::format("{} (pid {}) is another user's: ask as that user, or as root",
                                                       process.name, process.pid));
  }
  return base::fail(ErrorCode::kUnreachable, fmt::format("{} has ended", process.name));
}

}  // namespace llorch::cli::stack
