#pragma once
// A log file with a size cap: when it is full it becomes FILE.1, that one FILE.2, and so on; the oldest goes.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace llorch::base {

struct RotatingFileLimits {
  std::size_t file_bytes_max = 16 << 20;
  int files_kept = 4;                      // besides the one that is written
  std::size_t line_bytes_max = 256 << 10;  // a longer line is cut in several
};

// Nothing about it ever fails for its owner. Whole lines are written, and a file ends where a line does. A file or directory
// that has gone is made again. While the disk takes nothing, lines are dropped, and a line "log.dropped" says how many once
// it does. One owner; not thread-safe.
class RotatingFile {
 public:
  // Goes on behind what the file holds. Mode 0600.
  explicit RotatingFile(std::filesystem::path file, RotatingFileLimits limits = {});
  RotatingFile(const RotatingFile&) = delete;
  RotatingFile& operator=(const RotatingFile&) = delete;
  // Writes an unfinished line, too.
  ~RotatingFile();

  // Bytes in pieces of any size; the end of an unfinished line waits for its rest.
  void append(std::string_view bytes);

 private:
  void write_lines(std::string_view lines);
  void put(std::string_view lines);
  std::size_t write_whole_lines(std::string_view lines);
  void open_if_gone();
  void open();
  bool rotate();

  const std::filesystem::path file_;
  const RotatingFileLimits limits_;
  int fd_ = -1;
  std::size_t file_bytes_ = 0;
  std::string unfinished_;
  std::int64_t lines_dropped_ = 0;  // since the last note
};

}  // namespace llorch::base
