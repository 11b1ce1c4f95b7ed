#include "pool_managerd/worker_lifecycle/worker_log.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace llorch::pool_managerd::worker_lifecycle {

WorkerLog::WorkerLog(std::filesystem::path file, WorkerLogLimits limits)
    : limits_(limits), file_(std::move(file), limits.file) {}

void WorkerLog::append(std::string_view bytes) {
  file_.append(bytes);
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

void prune_worker_logs(const std::filesystem::path& directory, std::size_t keep) {
  std::error_code ec;
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> logs;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ec)) {
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
