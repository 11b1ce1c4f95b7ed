#pragma once
// Why a daemon ended before it was ready.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::cli::stack {

// What was appended to `path` after its first `offset` bytes, the last 64 KiB of it; all of a file that is shorter, which is a
// new one; empty if it cannot be read.
std::string read_log_tail(const std::filesystem::path& path, std::int64_t offset);

struct EndedDaemon {
  std::string name;
  int exit_status = 0;   // 128 + n for signal n
  std::string log_tail;  // what this run wrote: JSON lines, or plain lines "NAME: CODE: message"
  std::string log_path;  // to point people to
};
// The error the daemon named, else one derived from its exit status.
base::Error start_error(const EndedDaemon& daemon);

// Why a daemon that serves has no record of itself, for which `up` would wait; none: it has not said so in `log_tail`.
std::optional<base::Error> record_error(const std::string& name, std::string_view log_tail);

}  // namespace llorch::cli::stack
