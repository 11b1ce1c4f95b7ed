#include "base/run_command.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/child_process.h"

namespace llorch::base {
namespace {

constexpr int kPollMs = 100;

tl::unexpected<Error> not_started(const std::string& program, int error) {
  return fail(ErrorCode::kIoError, fmt::format("cannot run {}: {}", program, std::strerror(error)));
}

// Kills it and all that it started.
void end(pid_t pid) {
  kill(-pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<int> wait_for(pid_t pid, const RunCommandOptions& options) {
  const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) {
    const int error = errno;
    end(pid);
    return not_started(options.argv[0], error);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(options.timeout_ms);
  pollfd watched{pid_fd, POLLIN, 0};
  Result<int> out = 0;
  while (poll(&watched, 1, kPollMs) <= 0) {
    if (options.stop && options.stop()) {
      out = fail(ErrorCode::kCancelled, fmt::format("{} was ended: it is not wanted any more", options.argv[0]));
      break;
    }
    if (std::chrono::steady_clock::now() >= until) {
      out = fail(ErrorCode::kTimeout, fmt::format("{} took longer than {} ms", options.argv[0], options.timeout_ms));
      break;
    }
  }
  close(pid_fd);
  if (!out) {
    end(pid);
    return out;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return fail(ErrorCode::kIoError, fmt::format("{} was ended by signal {}", options.argv[0], WTERMSIG(status)));
}

}  // namespace

Result<int> run_command(const RunCommandOptions& options) {
  const auto pid = start_child({.argv = options.argv,
                                .environment = options.environment,
                                .directory = options.directory,
                                .output_fd = options.output_fd,
                                .leads_group = true});
  if (!pid) return not_started(options.argv[0], pid.error());
  return wait_for(*pid, options);
}

}  // namespace llorch::base
