#pragma once
// The worker processes of this pool manager: command lines, output, exits. Main thread only.
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/result.h"
#include "base/task_thread.h"
#include "pool_managerd/engines/engine_table.h"
#include "pool_managerd/main_loop.h"
#include "pool_managerd/worker_lifecycle/lifecycle.h"
#include "pool_managerd/worker_lifecycle/worker_log.h"
#include "pool_managerd/worker_lifecycle/worker_process.h"
#include "pool_managerd/worker_ports.h"

namespace llorch::pool_managerd {

struct WorkerHostOptions {
  std::filesystem::path executable;
  std::filesystem::path adapter_executable;       // of workers for engines of other systems
  const engines::EngineTable* engines = nullptr;  // REQUIRES not null, and outlives the host
  std::int64_t start_timeout_ms = 60'000;
  std::filesystem::path state_directory;   // logs/ lies in it
  std::string callback_base;               // URL below which workers report: BASEready, BASEprogress
  std::string bind_address;                // workers listen where the pool manager does
  std::string advertised_host;             // at which others reach them
  std::optional<config::PortRange> ports;  // that they listen on; absent: the system chooses
  std::string control_token;               // with which they are called
  std::string callback_token;              // with which they report
  bool auth_optional_on_loopback = false;
  std::int64_t threads_count = 1;
  std::int64_t shutdown_grace_ms = 30'000;
  bool step_counters = false;
  std::string speculation = "off";
  std::int64_t speculation_tokens = 8;
  std::filesystem::path repacked_dir;  // where workers keep weights as the CPU device packs them
  std::int64_t repacked_bytes_max = 0;
  std::string log_level = "info";
};

class WorkerHost {
 public:
  // `log_tail`: the worker's last lines, redacted, for our own log only.
  using OnExit =
      std::function<void(const base::WorkerId&, const worker_lifecycle::ExitFacts&, const std::string& log_tail)>;
  // Its process has gone and its container has not; OnExit follows.
  using OnLeaving = std::function<void(const base::WorkerId&)>;

  WorkerHost(WorkerHostOptions options, MainLoop& loop, OnLeaving on_leaving, OnExit on_exit);
  // Kills and reaps what still runs.
  ~WorkerHost();

  // The process id. Errors: WORKER_START_FAILED, those of WorkerPorts::take(). REQUIRES: no worker of this id runs.
  base::Result<int> spawn(const worker_lifecycle::Spawn& command);
  void signal(const base::WorkerId& id, worker_lifecycle::Kill kill);
  // Whether its process has begun to end, of which OnLeaving and OnExit tell later.
  bool is_ending(const base::WorkerId& id) const;
  // Whether its process is there and has not begun to end: otherwise its port may be somebody else's.
  bool serves(const base::WorkerId& id) const;

  // Of workers whose pool manager was killed. Blocks, and goes on later with what the runtime does not remove now. REQUIRES: no worker
  // was spawned yet.
  void remove_left_containers();
  // Waits for no container any more: their workers leave, and the next start removes what is left.
  void leave_containers() { leave_containers_ = true; }

 private:
  struct Running {
    worker_lifecycle::WorkerProcess process;
    std::unique_ptr<worker_lifecycle::WorkerLog> log;
    std::int64_t oom_kills_before = 0;
    std::optional<engines::Container> container;
  };
  // Adds what every worker is told, whatever engine it has; a flag without a value comes last.
  void add_common(const worker_lifecycle::Spawn& command, int listener_fd, std::vector<std::string>& out) const;
  // `listener_fd`: of its socket; negative: it makes its own.
  std::vector<std::string> arguments(const worker_lifecycle::Spawn& command, int listener_fd) const;
  std::vector<std::string> adapter_arguments(const worker_lifecycle::Spawn& command, int listener_fd,
                                             const std::optional<engines::Container>& container) const;
  void read_output(const std::string& id);
  void collect_exit(const std::string& id);
  // Calls `gone` on the loop's thread when it is, or is not waited for.
  void remove_container(const engines::Container& container, std::function<void()> gone);

  WorkerHostOptions options_;
  MainLoop& loop_;
  OnLeaving on_leaving_;
  OnExit on_exit_;
  engines::ContainerRecords containers_;
  WorkerPorts ports_;
  std::atomic<bool> leave_containers_ = false;
  std::map<std::string, Running> running_;
  base::TaskThread container_thread_;
};

}  // namespace llorch::pool_managerd
