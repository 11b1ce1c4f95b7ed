#include "pool_managerd/gpu_inventory/host_memory.h"

#include <algorithm>
#include <charconv>

namespace llorch::pool_managerd::gpu_inventory {
namespace {

std::optional<std::int64_t> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

// The rest of the first line that starts with `prefix`.
std::optional<std::string_view> line_after(std::string_view text, std::string_view prefix) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(prefix)) return line.substr(prefix.size());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_mem_available(std::string_view meminfo) {
  const auto rest = line_after(meminfo, "MemAvailable:");
  if (!rest || !rest->ends_with(" kB")) return std::nullopt;
  const auto kib = parse_number(*rest);
  if (!kib || *kib > (std::int64_t{1} << 43)) return std::nullopt;
  return *kib * 1024;
}

std::optional<std::string> parse_cgroup_path(std::string_view proc_self_cgroup) {
  const auto path = line_after(proc_self_cgroup, "0::");
  if (!path || !path->starts_with('/')) return std::nullopt;
  std::string out(*path);
  while (!out.empty() && out.back() == '/') out.pop_back();
  return out;
}

std::int64_t parse_oom_kills(std::string_view memory_events) {
  const auto rest = line_after(memory_events, "oom_kill ");
  return rest ? parse_number(*rest).value_or(0) : 0;
}

base::Result<std::int64_t> host_memory_left(const ReadText& read) {
  std::optional<std::int64_t> left;
  if (const auto meminfo = read("/proc/meminfo")) left = parse_mem_available(*meminfo);
  const auto membership = read("/proc/self/cgroup");
  std::optional<std::string> group = membership ? parse_cgroup_path(*membership) : std::nullopt;
  while (group) {
    const auto max_text = read("/sys/fs/cgroup" + *group + "/memory.max");
    const auto current_text = read("/sys/fs/cgroup" + *group + "/memory.current");
    const auto max = max_text ? parse_number(*max_text) : std::nullopt;  // "max" is no number: no limit here
    const auto current = current_text ? parse_number(*current_text) : std::nullopt;
    if (max && current) {
      const std::int64_t here = std::max<std::int64_t>(0, *max - *current);
      left = left ? std::min(*left, here) : here;
    }
    if (group->empty()) break;
    group->resize(group->rfind('/'));
  }
  if (!left) {
    return base::fail(base::ErrorCode::kIoError,
                      "the kernel does not tell how much memory is left; set devices.cpu_memory_bytes");
  }
  return *left;
}

}  // namespace llorch::pool_managerd::gpu_inventory
