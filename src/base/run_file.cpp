#include "base/run_file.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/process.h"

namespace llorch::base {

Result<> write_run_file(const std::filesystem::path& path, std::string_view bind) {
  const int pid = ::getpid();
  const std::uint64_t ticks = TRY(process_start_ticks(pid));
  const std::string where = bind.empty() ? std::string() : fmt::format(",\"bind\":\"{}\"", bind);
  return write_file_atomic(path, fmt::format("{{\"pid\":{},\"start_ticks\":{}{}}}\n", pid, ticks, where));
}

bool recorded_process_runs(int pid, std::uint64_t start_ticks) {
  // Held from before the look at /proc: while it has not ended, the pid is no other process's. By system call: glibc 2.36 declares
  // the wrapper without C linkage.
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (const auto ticks = process_start_ticks(pid)) return *ticks == start_ticks;
  if (process.get() < 0 || ::kill(pid, 0) != 0) return false;
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) == 0;
}

}  // namespace llorch::base
