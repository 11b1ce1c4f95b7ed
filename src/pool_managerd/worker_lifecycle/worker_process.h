#pragma once
// One worker process: spawned with a parent-death signal in a process group of its own, watched by pidfd.
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "pool_managerd/worker_lifecycle/failure.h"

namespace llorch::pool_managerd::worker_lifecycle {

struct SpawnOptions {
  std::filesystem::path executable;
  std::vector<std::string> arguments;                          // without argv[0]
  std::vector<std::pair<std::string, std::string>> variables;  // added to our own environment, or replacing it
  int kept_fd = -1;  // open in the child as well, under its number, which is above 2; negative: none is
};

// What /proc/PID/stat says: a process with the kernel's flag PF_EXITING (include/linux/sched.h), a zombie, or one that is dead.
bool says_ending(std::string_view stat);

// Owns the child: the destructor kills and reaps it. Not thread-safe.
class WorkerProcess {
 public:
  // The child's stdin is /dev/null, its stdout and stderr end in output_fd(). It gets SIGKILL when the *thread* that
  // called spawn ends, so REQUIRES: a thread that lives as long as the program (the main thread). WORKER_START_FAILED:
  // the executable is missing, is none, or the system has no room for a process.
  static base::Result<WorkerProcess> spawn(const SpawnOptions& options);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();

  int pid() const { return pid_; }
  // Readable when the process has ended.
  int exit_fd() const { return pid_fd_; }
  // Whether it has begun to end, which is before exit_fd() is readable: a process closes its sockets first, and on a busy machine it may
  // be long until it has ended. False where it cannot be looked at.
  bool is_ending() const;
  // Non-blocking read end of the child's output.
  int output_fd() const { return output_fd_; }
  // Gives `take` what has come, at most as much as the pipe holds: a child that never stops writing keeps nobody, and all that one has
  // written before it ended is there. False: no writer is left.
  bool read_output(const std::function<void(std::string_view)>& take) const;
  static constexpr int kOutputPipeBytes = 256 << 10;  // room for a burst of log lines while the main thread is busy

  // To the process (SIGTERM) or its whole group (SIGKILL). Nothing happens if it has ended.
  void terminate();
  void kill_group();
  // Collects the exit and kills what is left of the group. Waits if it has not ended. REQUIRES: not called before.
  ExitFacts reap();

 private:
  WorkerProcess() = default;
  void close_fds();

  int pid_ = -1;  // -1 once reaped or moved from
  int pid_fd_ = -1;
  int output_fd_ = -1;
};

}  // namespace llorch::pool_managerd::worker_lifecycle
