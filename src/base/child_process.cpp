#include "base/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/assert.h"
#include "base/descriptor_limit.h"

namespace llorch::base {
namespace {

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
  bool leads_group;
  pid_t parent;
};

// Between fork and exec only async-signal-safe calls are allowed: other threads may hold any lock.
[[noreturn]] void become(const Child& c) {
  const auto give_up = [&c] {
    const int error = errno;
    [[maybe_unused]] const ssize_t told = write(c.error_fd, &error, sizeof error);
    _exit(127);
  };
  if ((c.leads_group && setpgid(0, 0) != 0) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) give_up();
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
  restore_descriptor_limit();
  execve(c.argv[0], c.argv, c.envp);
  give_up();
  _exit(127);
}

}  // namespace

tl::expected<pid_t, int> start_child(const ChildOptions& options) {
  ASSERT(!options.argv.empty());
  std::vector<std::string> arguments = options.argv, variables = options.environment;
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const std::string directory = options.directory.string();
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return tl::unexpected(errno);
  const Child child{.argv = argv.data(),
                    .envp = envp.data(),
                    .directory = directory.empty() ? nullptr : directory.c_str(),
                    .output_fd = options.output_fd,
                    .error_fd = error_pipe[1],
                    .leads_group = options.leads_group,
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
  if (pid < 0) return tl::unexpected(fork_error);
  if (got == sizeof exec_error) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return tl::unexpected(exec_error);
  }
  return pid;
}

}  // namespace llorch::base
