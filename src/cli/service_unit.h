#pragma once
// The systemd unit of `llorch service install`. Pure.
#include <string>
#include <vector>

namespace llorch::cli {

// A user unit that runs `command` (program and arguments) in the foreground and stops it in order. Arguments are quoted, so that systemd
// neither splits nor expands them. REQUIRES: no argument holds a line feed.
std::string service_unit(const std::vector<std::string>& command);

}  // namespace llorch::cli
