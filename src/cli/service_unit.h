#pragma once
// The systemd unit of `llorch service install`. Pure.
#include <string>
#include <vector>

namespace llorch::cli {

// A user unit that runs `command` (program and arguments) in the foreground with `variables` (NAME=value) and stops it in order.
// Both are quoted, so that systemd neither splits nor expands them; settings with relative paths mean those below `directory`.
// `reload` is run when systemd is asked to reload it: the main process, the supervisor, has no configuration to read anew.
// REQUIRES: none of them holds a line feed.
struct ServiceCommands {
  std::vector<std::string> start, reload;
};
std::string service_unit(const ServiceCommands& commands, const std::vector<std::string>& variables,
                         const std::string& directory);

}  // namespace llorch::cli
