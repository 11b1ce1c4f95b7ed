#include "cli/service_unit.h"

#include <fmt/core.h>

#include "base/assert.h"

namespace llorch::cli {
namespace {

// As systemd.syntax and systemd.service want it: in quotes, with `\`, `"`, specifiers (%) and variables ($) escaped.
std::string quoted(const std::string& argument) {
  std::string out = "\"";
  for (const char c : argument) {
    ASSERT(c != '\n');
    if (c == '"' || c == '\\') out += '\\';
    if (c == '%' || c == '$') out += c;
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string service_unit(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& argument : command) line += (line.empty() ? "" : " ") + quoted(argument);
  return fmt::format(R"([Unit]
Description=llama-orch: language models of this user

[Service]
ExecStart={}
Restart=on-failure
# A driver or an address may come later than this service, so that no GPU (exit 4) and a failed bind (1) are tried again.
RestartSec=5
# Usage and configuration stay refused until somebody changes them.
RestartPreventExitStatus=2
# A worker that the kernel kills for memory is one that is started again; systemd would stop the whole unit.
OOMPolicy=continue
# The supervisor stops its daemons in order; it takes longer than the grace of the workers.
KillMode=mixed
TimeoutStopSec=110
NoNewPrivileges=yes

[Install]
WantedBy=default.target
)",
                     line);
}

}  // namespace llorch::cli
