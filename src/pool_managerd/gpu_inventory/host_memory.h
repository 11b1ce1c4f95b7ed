#pragma once
// How much memory the host has left for the CPU reference device. Pure: files come through a reader.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::pool_managerd::gpu_inventory {

// The content of a small file, or nothing if it cannot be read.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

// "MemAvailable:   123 kB" of /proc/meminfo, in bytes.
std::optional<std::int64_t> parse_mem_available(std::string_view meminfo);
// The cgroup v2 path in /proc/self/cgroup ("0::/user.slice/..."), without a trailing slash.
std::optional<std::string> parse_cgroup_path(std::string_view proc_self_cgroup);

// "oom_kill N" of a cgroup v2 memory.events; 0 if it is not there.
std::int64_t parse_oom_kills(std::string_view memory_events);

// What the process may still take: MemAvailable, or less if a cgroup v2 group it is in (or one above) leaves less
// (memory.max - memory.current). IO_ERROR if the kernel tells none of it.
base::Result<std::int64_t> host_memory_left(const ReadText& read);

}  // namespace llorch::pool_managerd::gpu_inventory
