#pragma once
// The commands that start the daemons and show their logs here, for sentences that say what to do next. systemd starts the daemons of
// an installed package; `llorch up` beside them would be a second stack.
#include <string>
#include <string_view>

namespace llorch::cli::stack {

// Whether these programs are those of an installed package, on a machine that systemd runs.
bool systemd_starts_daemons();

// "llorch up (...)" or "sudo systemctl start ...".
std::string start_command(bool by_systemd = systemd_starts_daemons());
// Of the daemon with this name; empty: of all.
std::string logs_command(std::string_view daemon, bool by_systemd = systemd_starts_daemons());

}  // namespace llorch::cli::stack
