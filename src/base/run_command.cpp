#include "base/run_command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/assert.h"

namespace llorch::base {
namespace {

constexpr int kPollMs = 100;

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

struct Child {
  char* const* argv;
  char* const* envp;
  const char* directory;  // null: stay
  int output_fd, error_fd;
  pid_t parent;
};

// Between fork and exec only async-signal-safe calls are allowed: other threads may hold any lock.
[[noreturn]] void become(const Child& c) {
  const auto give_up = [&c] {
    const int error = errno;
    [[maybe_unused]] const ssize_t told = write(c.error_fd, &error, sizeof error);
    _exit(127);
  };
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) give_up();
  if (getppid() != c.parent) _exit(127);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int out = c.output_fd >= 0 ? c.output_fd : null;
  if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) give_up();
  if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) give_up();
  if (c.directory != nullptr && chdir(c.directory) != 0) give_up();
  execve(c.argv[0], c.argv, c.envp);
  give_up();
  _exit(127);
}

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
  ASSERT(pid_fd >= 0, "{}", errno);
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
  ASSERT(!options.argv.empty());
  std::vector<std::string> arguments = options.argv, variables = options.environment;
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const std::string directory = options.directory.string();
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return not_started(options.argv[0], errno);
  const Child child{.argv = argv.data(),
                    .envp = envp.data(),
                    .directory = directory.empty() ? nullptr : directory.c_str(),
                    .output_fd = options.output_fd,
                    .error_fd = error_pipe[1],
                    .parent = getpid()};
  const pid_t pid = fork();
  if (pid == 0) become(child);
  const int fork_error = errno;
  close(error_pipe[1]);
  int exec_error = 0;
  ssize_t got = 0;
  if (pid > 0) {
    do {
      got = read(error_pipe[0], &exec_error, sizeof exec_error);
    } while (got < 0 && errno == EINTR);
  }
  close(error_pipe[0]);
  if (pid < 0) return not_started(options.argv[0], fork_error);
  if (got == sizeof exec_error) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return not_started(options.argv[0], exec_error);
  }
  return wait_for(pid, options);
}

}  // namespace llorch::base
