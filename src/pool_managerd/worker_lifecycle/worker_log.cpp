#include "pool_managerd/worker_lifecycle/worker_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace llorch::pool_managerd::worker_lifecycle {

WorkerLog::WorkerLog(std::filesystem::path file, WorkerLogLimits limits) : file_(std::move(file)), limits_(limits) {
  open();
}

WorkerLog::~WorkerLog() {
  if (fd_ >= 0) close(fd_);
}

void WorkerLog::open() {
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  file_bytes_ = 0;
}

void WorkerLog::write_file(std::string_view bytes) {
  if (file_bytes_ + bytes.size() > limits_.file_bytes_max && file_bytes_ > 0) {
    std::error_code ignored;
    std::filesystem::rename(file_, file_.string() + ".1", ignored);
    if (fd_ >= 0) close(fd_);
    open();
  }
  bytes = bytes.substr(0, limits_.file_bytes_max);
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    file_bytes_ += static_cast<std::size_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void WorkerLog::append(std::string_view bytes) {
  write_file(bytes);
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (!line_open_) lines_.emplace_back();
    std::string& line = lines_.back();
    line.append(part.substr(0, limits_.line_bytes_max - std::min(limits_.line_bytes_max, line.size())));
    line_open_ = end == std::string_view::npos;
    if (line_open_) break;
    bytes.remove_prefix(end + 1);
  }
  while (lines_.size() > limits_.tail_lines_max) lines_.pop_front();
}

std::string WorkerLog::tail() const {
  std::string out;
  for (const std::string& line : lines_) out += line + '\n';
  return out;
}

void prune_worker_logs(const std::filesystem::path& folder, std::size_t keep) {
  std::error_code ec;
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ec)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("worker-") && name.ends_with(".log"))
      logs.emplace_back(entry.last_write_time(ec), entry.path());
  }
  if (logs.size() <= keep) return;
  std::sort(logs.begin(), logs.end());
  for (std::size_t i = 0; i + keep < logs.size(); ++i) {
    std::filesystem::remove(logs[i].second, ec);
    std::filesystem::remove(logs[i].second.string() + ".1", ec);
  }
}

}  // namespace llorch::pool_managerd::worker_lifecycle
