#pragma once
// The logs of a stack, read back in the order in which they were written, over rotated files.
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::cli::stack {

// One log: FILE and what it was rotated into, FILE.1 and so on, the oldest first. A file may be rotated, moved away or
// removed while it is read; no line comes twice, and none that is still there is left out. One owner; not thread-safe.
class LogReader {
 public:
  explicit LogReader(std::filesystem::path file) : file_(std::move(file)) {}
  LogReader(LogReader&& other) noexcept;
  LogReader& operator=(LogReader&&) = delete;
  ~LogReader();

  // The next line without its end. Absent: no whole line is there; ask again later.
  std::optional<std::string> next();
  // What is there of a line that has no end yet. It does not come again.
  std::string take_rest();

 private:
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const FileId&) const = default;
  };
  // Held open, so that no new file gets the same id.
  struct OpenFile {
    int fd = -1;
    FileId id{};
  };
  struct Generation {
    std::filesystem::path path;
    FileId id;
  };
  std::vector<Generation> generations() const;
  bool read_some();
  bool go_on();

  const std::filesystem::path file_;
  OpenFile current_;
  std::vector<OpenFile> finished_;  // read to their ends; those that had gone when a file was looked for are closed
  std::string buffer_;
  std::size_t at_ = 0;  // in buffer_
};

// Several logs as one, by the times their lines begin with. A line without a time follows the one before it.
class LogMerge {
 public:
  // Nothing happens if it is read already.
  void add(const std::filesystem::path& file);
  std::optional<std::string> next();
  // As LogReader::take_rest(), of all.
  std::vector<std::string> take_rests();

 private:
  struct Source {
    std::filesystem::path file;
    LogReader reader;
    std::optional<std::string> line{};
    std::string time{};  // of `line`
  };
  std::vector<Source> sources_;
};

// The logs in `directory` that `component` means, by name: a daemon, a worker ("worker-...") or all workers ("worker-orcd");
// empty: all there are. Errors: INVALID_PARAMS (nothing is there, or nothing of this name); IO_ERROR.
base::Result<std::vector<std::filesystem::path>> find_logs(const std::filesystem::path& directory,
                                                           std::string_view component);

// A line as a person reads it: time, level, component, event, what happened, and the fields. No control character of the line is
// kept. A line that is no JSON object stays as it is.
std::string readable_line(std::string_view line);

}  // namespace llorch::cli::stack
