#include "cli/stack/daemon_commands.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/process.h"

namespace llorch::cli::stack {

bool systemd_starts_daemons() {
  std::error_code ec;  // what cannot be looked at is not there
  return base::executable_directory() == "/usr/lib/llorch" && std::filesystem::exists("/run/systemd/system", ec);
}

std::string start_command(bool by_systemd) {
  if (by_systemd) return "sudo systemctl start orchestratord pool-managerd";
  return "llorch up (or llorch up --cpu on a machine without an NVIDIA GPU)";
}

std::string logs_command(std::string_view daemon, bool by_systemd) {
  if (!by_systemd) return daemon.empty() ? "llorch logs" : fmt::format("llorch logs {}", daemon);
  if (daemon.empty()) return "journalctl -u orchestratord -u pool-managerd";
  return fmt::format("journalctl -u {}", daemon);
}

}  // namespace llorch::cli::stack
