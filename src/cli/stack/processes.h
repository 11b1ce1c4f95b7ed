#pragma once
// Processes that recorded themselves in run/NAME.json.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::cli::stack {

// Pid and start time together name one process for ever.
struct RunningProcess {
  std::string name;
  int pid = 0;
  std::uint64_t start_ticks = 0;
  std::string bind;  // empty: it listens nowhere
};

// Those that still run, by name. Records of ended processes, of recycled pids and unreadable ones are skipped.
std::vector<RunningProcess> running_processes(const std::filesystem::path& state_dir);

// Whether they could be seen. Errors: IO_ERROR (the directory is somebody else's, for instance).
base::Result<> check_records(const std::filesystem::path& state_dir);

struct StopLimits {
  std::chrono::milliseconds terminate{95'000};  // after SIGTERM; a supervisor stops two daemons in this time
  std::chrono::milliseconds kill{5'000};        // after SIGKILL
};
// SIGTERM, then SIGKILL, until `process` has ended; success if it had already. TIMEOUT if even SIGKILL did not help.
base::Result<> stop_process(const RunningProcess& process, const StopLimits& limits);
// SIGHUP: a running orchestratord reads its configuration anew. Errors: UNREACHABLE (it has ended), IO_ERROR (it is somebody else's).
base::Result<> ask_to_reload(const RunningProcess& process);

}  // namespace llorch::cli::stack
