#pragma once
// orchestratord's command line, and the program around an Orchestrator.
#include <optional>
#include <string>

#include "orchestratord/daemon/orchestrator.h"

namespace llorch::orchestratord::daemon {

struct CommandLine {
  config::ConfigSources sources;
  std::optional<std::filesystem::path> state_directory;
  std::vector<std::filesystem::path> model_roots;
  // At most one: do that and end, instead of serving.
  std::optional<std::filesystem::path> backup_file, restore_file;
  std::optional<std::string> pair_pool;
  bool take_over = false;
  bool checks = false;                    // Orchestrator::check() alone; its outcome is a line of JSON
  std::filesystem::path credential_file;  // with pair_pool
  bool json = false;                      // how their outcome is printed
  // Set: print `message` (help, version, usage error) and exit with it.
  std::optional<int> exit_code;
  std::string message;
};
CommandLine parse_command_line(int argc, const char* const* argv);

// Loads configuration and token. Errors: CONFIG_INVALID.
base::Result<OrchestratorOptions> load_options(const CommandLine& command_line);

// The whole program. Returns 0 after an orderly stop, 2 for usage and configuration, 4 when refused by policy (a bind
// beyond loopback without a token), 5 where prompts of another orchestratord or store would be lost, or another version wrote what a start
// reads, else 1.
int run_orchestratord(int argc, const char* const* argv);

}  // namespace llorch::orchestratord::daemon
