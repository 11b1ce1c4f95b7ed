#include "adapter/process/engine_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/child_process.h"

extern char** environ;

namespace llorch::adapter::process {
namespace {

constexpr int kTermGraceMs = 3'000;

std::vector<std::string> environment(const Variables& variables) {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    // With the second one CUDA lets a model that does not fit leave the device's memory, and says nothing.
    const bool kept_back = variable.starts_with("LLORCH_") || variable.starts_with("GGML_CUDA_ENABLE_UNIFIED_MEMORY=");
    if (!kept_back) out.emplace_back(variable);
  }
  for (const auto& [name, value] : variables) {
    std::erase_if(out, [&](const std::string& one) { return one.starts_with(name + "="); });
    out.push_back(name + "=" + value);
  }
  return out;
}

tl::unexpected<base::Error> start_failed(const std::string& program, int error) {
  return base::fail(base::ErrorCode::kWorkerStartFailed,
                    fmt::format("cannot start the engine {}: {}", program, std::strerror(error)));
}

}  // namespace

base::Result<EngineProcess> EngineProcess::start(const std::vector<std::string>& command, const Variables& variables,
                                                 std::function<void()> on_exit) {
  // What it says goes where this process's errors go.
  const auto pid =
      base::start_child({.argv = command, .environment = environment(variables), .output_fd = STDERR_FILENO});
  if (!pid) return start_failed(command[0], pid.error());
  EngineProcess out;
  out.pid_ = *pid;
  out.pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, *pid, 0));
  out.stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (out.pid_fd_ < 0 || out.stop_fd_ < 0) return start_failed(command[0], errno);
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
  if (watcher_.joinable()) watcher_.join();
  kill(pid_, SIGTERM);
  pollfd ended{pid_fd_, POLLIN, 0};
  if (poll(&ended, 1, kTermGraceMs) <= 0) kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(pid_fd_);
  close(stop_fd_);
}

}  // namespace llorch::adapter::process
