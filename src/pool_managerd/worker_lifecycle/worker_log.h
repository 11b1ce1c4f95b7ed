#pragma once
// What a worker writes to its standard output and error: a file with a size cap, and the last lines in memory.
#include <cstddef>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/rotating_file.h"

namespace llorch::pool_managerd::worker_lifecycle {

struct WorkerLogLimits {
  base::RotatingFileLimits file{.file_bytes_max = 4 << 20, .files_kept = 1};
  std::size_t tail_lines_max = 20;
  std::size_t line_bytes_max = 1024;  // in the tail; the rest of a longer line is only in the file
};

// Losing a log line is no reason to fail: see base::RotatingFile. One owner; not thread-safe.
class WorkerLog {
 public:
  explicit WorkerLog(std::filesystem::path file, WorkerLogLimits limits = {});

  void append(std::string_view bytes);
  // The last lines, each ended by LF, as written: redact before logging.
  std::string tail() const;

 private:
  const WorkerLogLimits limits_;
  base::RotatingFile file_;
  std::deque<std::string> lines_;  // the last one may be unfinished
  bool line_open_ = false;
};

// Removes the oldest worker-*.log files (with their .1) of `directory` until at most `keep` remain.
void prune_worker_logs(const std::filesystem::path& directory, std::size_t keep);

}  // namespace llorch::pool_managerd::worker_lifecycle
