#include "pool_managerd/worker_lifecycle/worker_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "base/descriptor_limit.h"
#include "base/file.h"

extern char** environ;

namespace llorch::pool_managerd::worker_lifecycle {
namespace {

using base::ErrorCode;

struct ChildPlan {
  const char* executable;
  char* const* argv;
  char* const* envp;
  int null_fd;
  int output_fd;
  int error_fd;  // closed by a successful exec; else it carries errno
  pid_t parent;
  int kept_fd;
};

// Between fork and exec only async-signal-safe calls are allowed: other threads may hold any lock.
[[noreturn]] void become_worker(const ChildPlan& plan) {
  const auto give_up = [&] {
    const int error = errno;
    [[maybe_unused]] const ssize_t told = write(plan.error_fd, &error, sizeof error);
    _exit(127);
  };
  if (setpgid(0, 0) != 0) give_up();
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) give_up();
  // The parent may have died before the line above; then nobody would ever send the signal.
  if (getppid() != plan.parent) _exit(127);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(plan.null_fd, 0) < 0 || dup2(plan.output_fd, 1) < 0 || dup2(plan.output_fd, 2) < 0) give_up();
  // Asio's sockets are not close-on-exec: a worker that kept the listener would hold the port after this daemon's death.
  if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) give_up();
  if (plan.kept_fd >= 0 && fcntl(plan.kept_fd, F_SETFD, 0) != 0) give_up();
  base::restore_descriptor_limit();
  execve(plan.executable, plan.argv, plan.envp);
  give_up();
  _exit(127);
}

std::vector<std::string> environment(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::map<std::string, std::string> merged;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry(*at);
    const std::size_t equals = entry.find('=');
    if (equals != std::string_view::npos) merged[std::string(entry.substr(0, equals))] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : variables) merged[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : merged) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

struct Fd {
  int value = -1;
  ~Fd() { reset(); }
  void reset() {
    if (value >= 0) close(value);
    value = -1;
  }
  int release() { return std::exchange(value, -1); }
};

tl::unexpected<base::Error> start_failed(std::string_view what, const std::filesystem::path& executable, int error) {
  return base::fail(ErrorCode::kWorkerStartFailed,
                    fmt::format("cannot start the worker program {}: {}: {}; check pool-managerd.worker_binary",
                                executable.filename().string(), what, std::strerror(error)));
}

}  // namespace

base::Result<WorkerProcess> WorkerProcess::spawn(const SpawnOptions& options) {
  std::vector<std::string> arguments = options.arguments;
  arguments.insert(arguments.begin(), options.executable.string());
  std::vector<std::string> variables = environment(options.variables);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);

  int output[2], error[2];
  if (pipe2(output, O_CLOEXEC) != 0) return start_failed("pipe", options.executable, errno);
  Fd output_read{output[0]}, output_write{output[1]};
  if (pipe2(error, O_CLOEXEC) != 0) return start_failed("pipe", options.executable, errno);
  Fd error_read{error[0]}, error_write{error[1]};
  Fd null{open("/dev/null", O_RDONLY | O_CLOEXEC)};
  if (null.value < 0) return start_failed("/dev/null", options.executable, errno);
  fcntl(output_read.value, F_SETFL, O_NONBLOCK);
  fcntl(output_read.value, F_SETPIPE_SZ, WorkerProcess::kOutputPipeBytes);

  const ChildPlan plan{options.executable.c_str(), argv.data(),       envp.data(), null.value,
                       output_write.value,         error_write.value, getpid(),    options.kept_fd};
  const pid_t pid = fork();
  if (pid < 0) return start_failed("fork", options.executable, errno);
  if (pid == 0) become_worker(plan);

  WorkerProcess out;
  out.pid_ = pid;
  setpgid(pid, pid);  // also here, so that kill_group works from now on
  error_write.reset();
  output_write.reset();
  int exec_error = 0;
  ssize_t got;
  do {
    got = read(error_read.value, &exec_error, sizeof exec_error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof exec_error) return start_failed("exec", options.executable, exec_error);
  out.pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (out.pid_fd_ < 0) return start_failed("pidfd_open", options.executable, errno);
  out.output_fd_ = output_read.release();
  return out;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pid_fd_(std::exchange(other.pid_fd_, -1)),
      output_fd_(std::exchange(other.output_fd_, -1)) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pid_fd_, other.pid_fd_);
  std::swap(output_fd_, other.output_fd_);
  return *this;
}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) {
    kill_group();
    reap();
  }
  close_fds();
}

void WorkerProcess::close_fds() {
  if (pid_fd_ >= 0) close(pid_fd_);
  if (output_fd_ >= 0) close(output_fd_);
  pid_fd_ = output_fd_ = -1;
}

bool WorkerProcess::read_output(const std::function<void(std::string_view)>& take) const {
  char buffer[16384];
  for (std::size_t left = kOutputPipeBytes; left > 0;) {
    const ssize_t got = read(output_fd_, buffer, std::min(left, sizeof buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0;
    take({buffer, static_cast<std::size_t>(got)});
    left -= static_cast<std::size_t>(got);
  }
  return true;
}

bool says_ending(std::string_view stat) {
  constexpr unsigned kExiting = 0x4;
  // The name before it is in brackets and may contain anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return false;
  char state = 0;
  unsigned flags = 0;
  const std::string rest(stat.substr(name_end + 1));
  if (std::sscanf(rest.c_str(), " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2) return false;
  return state == 'Z' || state == 'X' || (flags & kExiting) != 0;
}

bool WorkerProcess::is_ending() const {
  const auto stat = base::read_file("/proc/" + std::to_string(pid_) + "/stat", 4096);
  return stat && says_ending(*stat);
}

void WorkerProcess::terminate() {
  if (pid_ > 0) kill(pid_, SIGTERM);
}

void WorkerProcess::kill_group() {
  if (pid_ > 0) kill(-pid_, SIGKILL);
}

ExitFacts WorkerProcess::reap() {
  ASSERT(pid_ > 0);
  siginfo_t info{};
  int rc;
  // First wait without collecting: while the leader is a zombie its group id cannot name anybody else.
  do {
    rc = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  } while (rc != 0 && errno == EINTR);
  ASSERT(rc == 0, "waitid: {}", errno);
  kill(-pid_, SIGKILL);
  do {
    rc = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  } while (rc != 0 && errno == EINTR);
  ASSERT(rc == 0, "waitid: {}", errno);
  pid_ = -1;
  ExitFacts facts;
  if (info.si_code == CLD_EXITED) {
    facts.exit_code = info.si_status;
  } else {
    facts.signal = info.si_status;
    facts.exit_code = 128 + info.si_status;
  }
  return facts;
}

}  // namespace llorch::pool_managerd::worker_lifecycle
