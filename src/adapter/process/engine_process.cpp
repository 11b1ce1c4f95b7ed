#include "adapter/process/engine_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/assert.h"

extern char** environ;

namespace llorch::adapter::process {
namespace {

constexpr int kTermGraceMs = 3'000;

std::vector<std::string> environment() {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    // With the second one CUDA lets a model that does not fit leave the device's memory, and says nothing.
    const bool kept_back = variable.starts_with("LLORCH_") || variable.starts_with("GGML_CUDA_ENABLE_UNIFIED_MEMORY=");
    if (!kept_back) out.emplace_back(variable);
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

// Between fork and exec only async-signal-safe calls are allowed: other threads may hold any lock.
[[noreturn]] void become_engine(char* const* argv, char* const* envp, int error_fd, pid_t parent) {
  const auto give_up = [&] {
    const int error = errno;
    [[maybe_unused]] const ssize_t told = write(error_fd, &error, sizeof error);
    _exit(127);
  };
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) give_up();
  if (getppid() != parent) _exit(127);  // it died before the line above
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0) give_up();
  if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) give_up();
  execve(argv[0], argv, envp);
  give_up();
  _exit(127);
}

tl::unexpected<base::Error> start_failed(const std::string& program, int error) {
  return base::fail(base::ErrorCode::kWorkerStartFailed,
                    fmt::format("cannot start the engine {}: {}", program, std::strerror(error)));
}

}  // namespace

base::Result<EngineProcess> EngineProcess::start(const std::vector<std::string>& command,
                                                 std::function<void()> on_exit) {
  ASSERT(!command.empty());
  std::vector<std::string> arguments = command, variables = environment();
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return start_failed(command[0], errno);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become_engine(argv.data(), envp.data(), error_pipe[1], parent);
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
  if (pid < 0) return start_failed(command[0], fork_error);
  if (got == sizeof exec_error) {
    waitpid(pid, nullptr, 0);
    return start_failed(command[0], exec_error);
  }
  EngineProcess out;
  out.pid_ = pid;
  out.pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  out.stop_fd_ = eventfd(0, EFD_CLOEXEC);
  ASSERT(out.pid_fd_ >= 0 && out.stop_fd_ >= 0, "{}", errno);
  out.watcher_ = std::thread([pid_fd = out.pid_fd_, stop_fd = out.stop_fd_, on_exit = std::move(on_exit)] {
    pollfd watched[2] = {{pid_fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    while (poll(watched, 2, -1) < 0 && errno == EINTR) {
    }
    if ((watched[1].revents & POLLIN) == 0) on_exit();
  });
  return out;
}

EngineProcess::EngineProcess(EngineProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pid_fd_(std::exchange(other.pid_fd_, -1)),
      stop_fd_(std::exchange(other.stop_fd_, -1)),
      watcher_(std::move(other.watcher_)) {}

EngineProcess& EngineProcess::operator=(EngineProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pid_fd_, other.pid_fd_);
  std::swap(stop_fd_, other.stop_fd_);
  std::swap(watcher_, other.watcher_);
  return *this;
}

EngineProcess::~EngineProcess() {
  if (pid_ <= 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = write(stop_fd_, &one, sizeof one);
  watcher_.join();
  kill(pid_, SIGTERM);
  pollfd ended{pid_fd_, POLLIN, 0};
  if (poll(&ended, 1, kTermGraceMs) <= 0) kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(pid_fd_);
  close(stop_fd_);
}

}  // namespace llorch::adapter::process
