#pragma once
// What a worker writes to its standard output and error: a file with a size cap, and the last lines in memory.
#include <cstddef>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

namespace llorch::pool_managerd::worker_lifecycle {

struct WorkerLogLimits {
  std::size_t file_bytes_max = 4 << 20;  // then FILE becomes FILE.1, so at most twice this stays on disk
  std::size_t tail_lines_max = 20;
  std::size_t line_bytes_max = 1024;  // in the tail; the rest of a longer line is only in the file
};

// Losing a log line is no reason to fail: a file that cannot be written is left out. One owner; not thread-safe.
class WorkerLog {
 public:
  explicit WorkerLog(std::filesystem::path file, WorkerLogLimits limits = {});
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;
  ~WorkerLog();

  void append(std::string_view bytes);
  // The last lines, each ended by LF, as written: redact before logging.
  std::string tail() const;

 private:
  void open();
  void write_file(std::string_view bytes);

  std::filesystem::path file_;
  WorkerLogLimits limits_;
  int fd_ = -1;
  std::size_t file_bytes_ = 0;
  std::deque<std::string> lines_;  // the last one may be unfinished
  bool line_open_ = false;
};

// Removes the oldest worker-*.log files (with their .1) of `folder` until at most `keep` remain.
void prune_worker_logs(const std::filesystem::path& folder, std::size_t keep);

}  // namespace llorch::pool_managerd::worker_lifecycle
