#pragma once
// What a daemon writes to its standard output and error, on its way to a file that is rotated by size.
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/rotating_file.h"

namespace llorch::cli::stack {

// A pipe and the thread that empties it into the file. The daemon holds a pipe and not the file, so that the file can be
// moved away under it. Owns both ends and the thread.
class LogPump {
 public:
  // IO_ERROR if the system has no pipe left.
  static base::Result<std::unique_ptr<LogPump>> start(const std::filesystem::path& file,
                                                      base::RotatingFileLimits limits = {});
  // What was written into the pipe before is in the file afterwards. Does not wait for writers to close it.
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  // For a child's standard output and error. Closed on exec, and with this object.
  int write_fd() const { return write_fd_; }
  // The last 64 KiB that were written, also where the disk has no room for them.
  std::string tail() const;

 private:
  LogPump(const std::filesystem::path& file, base::RotatingFileLimits limits) : file_(file, limits) {}
  void run();
  bool read_some();

  base::RotatingFile file_;
  mutable std::mutex mutex_;
  std::string tail_;  // guarded by mutex_
  int read_fd_ = -1, write_fd_ = -1, stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace llorch::cli::stack
