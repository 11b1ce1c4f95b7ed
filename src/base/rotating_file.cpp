#include "base/rotating_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

namespace llorch::base {

RotatingFile::RotatingFile(std::filesystem::path file, RotatingFileLimits limits)
    : file_(std::move(file)), limits_(limits) {
  open();
}

RotatingFile::~RotatingFile() {
  if (!unfinished_.empty()) write_lines(unfinished_ += '\n');
  if (fd_ >= 0) ::close(fd_);
}

void RotatingFile::append(std::string_view bytes) {
  unfinished_ += bytes;
  if (const std::size_t end = unfinished_.rfind('\n'); end != std::string::npos) {
    write_lines(std::string_view(unfinished_).substr(0, end + 1));
    unfinished_.erase(0, end + 1);
  }
  if (unfinished_.size() > limits_.line_bytes_max) {
    write_lines(unfinished_ += '\n');
    unfinished_.clear();
  }
}

void RotatingFile::write_lines(std::string_view lines) {
  open_if_gone();
  while (!lines.empty()) {
    std::size_t fitting = lines.size();
    const std::size_t room = limits_.file_bytes_max - std::min(limits_.file_bytes_max, file_bytes_);
    if (fitting > room) {
      const std::size_t end = room == 0 ? std::string_view::npos : lines.rfind('\n', room - 1);
      if (end != std::string_view::npos) {
        fitting = end + 1;
      } else if (file_bytes_ == 0) {
        fitting = lines.find('\n') + 1;  // a line that is larger than a file
      } else if (rotate()) {
        continue;
      }
    }
    put(lines.substr(0, fitting));
    lines.remove_prefix(fitting);
  }
}

void RotatingFile::put(std::string_view lines) {
  if (lines_dropped_ > 0) {
    const std::string note =
        format_log_line("log", {.level = LogLevel::kWarn,
                                .unix_ms = SystemClock().now().unix_ms,
                                .event = "log.dropped",
                                .correlation_id = {},
                                .human = "Log lines are missing here: this file could not be written.",
                                .fields = {{"lines_dropped", lines_dropped_}}}) +
        '\n';
    if (write_whole_lines(note) == note.size()) lines_dropped_ = 0;
  }
  const std::size_t written = lines_dropped_ > 0 ? 0 : write_whole_lines(lines);
  const std::string_view lost = lines.substr(written);
  lines_dropped_ += std::count(lost.begin(), lost.end(), '\n');
}

// How many bytes of whole lines stand in the file afterwards.
std::size_t RotatingFile::write_whole_lines(std::string_view lines) {
  std::size_t done = 0;
  while (fd_ >= 0 && done < lines.size()) {
    const ssize_t written = ::write(fd_, lines.data() + done, lines.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  if (done > 0 && done < lines.size()) {
    const std::size_t end = lines.rfind('\n', done - 1);
    done = end == std::string_view::npos ? 0 : end + 1;
    [[maybe_unused]] const int cut = ::ftruncate(fd_, static_cast<off_t>(file_bytes_ + done));  // the part of a line
  }
  file_bytes_ += done;
  return done;
}

// Somebody may have removed the file, its directory, or moved it away.
void RotatingFile::open_if_gone() {
  struct stat at_path {
  }, held{};
  const bool is_there = fd_ >= 0 && ::stat(file_.c_str(), &at_path) == 0 && ::fstat(fd_, &held) == 0 &&
                        at_path.st_ino == held.st_ino && at_path.st_dev == held.st_dev;
  if (!is_there) open();
}

void RotatingFile::open() {
  if (fd_ >= 0) ::close(fd_);
  [[maybe_unused]] const auto made = ensure_private_directory(file_.parent_path());
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat held {};
  file_bytes_ = fd_ >= 0 && ::fstat(fd_, &held) == 0 ? static_cast<std::size_t>(held.st_size) : 0;
}

// False if the full file cannot be moved away: then it grows.
bool RotatingFile::rotate() {
  const auto older = [&](int n) {
    return n == 0 ? file_ : std::filesystem::path(fmt::format("{}.{}", file_.string(), n));
  };
  std::error_code failed;
  if (limits_.files_kept == 0) std::filesystem::remove(file_, failed);
  for (int n = limits_.files_kept; n > 0; --n) {
    failed.clear();
    std::filesystem::rename(older(n - 1), older(n), failed);
  }
  open();
  return !failed;
}

}  // namespace llorch::base
