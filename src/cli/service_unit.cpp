#include "cli/service_unit.h"

#include <fmt/core.h>

#include <string_view>

#include "base/assert.h"

namespace llorch::cli {
namespace {

// As systemd.syntax wants it: in quotes, with `\`, `"` and `doubled` escaped.
std::string quoted(const std::string& text, std::string_view doubled) {
  std::string out = "\"";
  for (const char c : text) {
    ASSERT(c != '\n');
    if (c == '"' || c == '\\') out += '\\';
    if (doubled.find(c) != std::string_view::npos) out += c;
    out += c;
  }
  return out + '"';
}

// systemd replaces specifiers (%) in both, and variables ($) in commands.
constexpr std::string_view kOfCommands = "%$", kOfVariables = "%";

std::string line_of(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& argument : command) line += (line.empty() ? "" : " ") + quoted(argument, kOfCommands);
  return line;
}

}  // namespace

std::string service_unit(const ServiceCommands& commands, const std::vector<std::string>& variables,
                         const std::string& directory) {
  std::string environment, place;
  for (const char c : directory) place += c == '%' ? "%%" : std::string(1, c);
  for (const std::string& variable : variables) {
    environment += fmt::format("Environment={}\n", quoted(variable, kOfVariables));
  }
  return fmt::format(R"([Unit]
Description=llama-orch: language models of this user

[Service]
WorkingDirectory=-{}
{}ExecStart={}
ExecReload={}
Restart=on-failure
# A driver or an address may come later than this service: no GPU (exit 4, as of other refusals) and a failed bind (1) are tried again.
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
                     place, environment, line_of(commands.start), line_of(commands.reload));
}

}  // namespace llorch::cli
