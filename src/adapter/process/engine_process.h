#pragma once
// The engine's own process, where the adapter starts it: a child that dies with its parent. Used by one thread.
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llorch::adapter::process {

using Variables = std::vector<std::pair<std::string, std::string>>;

class EngineProcess {
 public:
  // `command`: an absolute path and its arguments. The child gets SIGKILL when the *thread* that called start ends, writes where
  // this process writes its log, and inherits none of its LLORCH_ variables, which hold tokens; `variables` are added. `on_exit` is called once, on a
  // thread of its own, when the child ends by itself. Errors: WORKER_START_FAILED.
  static base::Result<EngineProcess> start(const std::vector<std::string>& command, const Variables& variables,
                                           std::function<void()> on_exit);
  EngineProcess() = default;
  EngineProcess(EngineProcess&& other) noexcept;
  EngineProcess& operator=(EngineProcess&& other) noexcept;
  // SIGTERM, and SIGKILL where it does not help.
  ~EngineProcess();

  bool runs() const { return pid_ > 0; }
  int pid() const { return pid_; }

 private:
  int pid_ = -1;
  int pid_fd_ = -1;
  int stop_fd_ = -1;
  std::thread watcher_;
};

}  // namespace llorch::adapter::process
