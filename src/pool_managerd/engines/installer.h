#pragma once
// Installs the programs of engines on this machine: carries out the plan of adapter/setup, and nothing that it does not say.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "adapter/setup/plan.h"
#include "pool_managerd/provisioner/sources/locate.h"
#include "pool_managerd/provisioner/stop_flag.h"

namespace llorch::pool_managerd::engines {

struct InstallerOptions {
  config::InstallPolicyConfig policy;
  provisioner::web::WebOptions web;  // whom it may ask, as for models
  provisioner::sources::SourceSettings sources;
  std::int64_t connections = 4;
  std::filesystem::path log_directory;          // LOG_DIRECTORY/engine-NAME.log has what each command printed
  std::vector<std::string> environment;         // NAME=VALUE, of this process
  const base::Clock* clock = nullptr;           // REQUIRES not null
  const provisioner::StopFlag* stop = nullptr;  // REQUIRES not null
  std::function<void(const adapter::setup::Step& step)> on_step;
  std::function<void(std::int64_t done, std::int64_t total)> on_bytes;
};
// Errors: those of provisioner_options().
base::Result<InstallerOptions> installer_options(const config::Config& config,
                                                 const std::filesystem::path& state_directory);

// The installation of `engine`, which is there already or is made now. One that fails leaves nothing that counts as one. Blocks.
// REQUIRES: is_installed_here(engine). Errors: FORBIDDEN (the policy; details.what_to_do), NOT_FOUND (a tool, or the program that
// should have come), CONFLICT (another process installs it), WORKER_START_FAILED (a command failed; its log is named),
// INSUFFICIENT_DISK (a command is ended once it has left too little room, too), those of downloads.
base::Result<adapter::setup::Installation> install(const config::EngineConfig& engine, const InstallerOptions& options);

// The bytes that the installation in `directory` took; 0: there is none. Errors: CONFLICT (a worker runs it), IO_ERROR.
base::Result<std::int64_t> uninstall(const std::filesystem::path& directory);

}  // namespace llorch::pool_managerd::engines
