#pragma once
// A disk without room for one process, and what it leaves behind.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>

namespace llorch::base::testing {

// While it lives, this process cannot make files larger than that: its disk is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes_max) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes_max, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

// Whether this process holds the file open.
inline bool is_open_here(const std::filesystem::path& file) {
  std::error_code gone;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (std::filesystem::read_symlink(fd.path(), gone).string().starts_with(file.string())) return true;
  }
  return false;
}

}  // namespace llorch::base::testing
