#pragma once
// pool-managerd's command line and configuration, up to what PoolManager needs.
#include <optional>
#include <string>

#include "base/result.h"
#include "pool_managerd/pool_manager.h"

namespace llorch::pool_managerd {

// `exit_code` set: print `message` (help, version, usage error) and exit with it.
struct CommandLine {
  config::ConfigSources sources;
  std::optional<std::filesystem::path> state_directory;
  std::vector<std::filesystem::path> model_roots;
  std::string nvml_library = "libnvidia-ml.so.1";
  std::string install_engine, remove_engine;  // done instead of serving
  bool checks = false;                        // PoolManager::check() alone; its outcome is a line of JSON
  std::optional<int> exit_code;
  std::string message;
};
CommandLine parse_command_line(int argc, const char* const* argv);

// Loads the configuration and the token. Errors: CONFIG_INVALID.
base::Result<PoolManagerOptions> load_options(const CommandLine& command_line);

// The whole program; returns the exit code: 0 after an orderly stop, 2 for usage and configuration, 4 when refused by
// policy (no GPU, bind without token), 1 otherwise.
int run_pool_managerd(int argc, const char* const* argv);

}  // namespace llorch::pool_managerd
