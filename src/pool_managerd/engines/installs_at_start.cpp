#include "pool_managerd/engines/installs_at_start.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "pool_managerd/engines/installer.h"

namespace llorch::pool_managerd::engines {
namespace {

void install_all(const config::Config& config, const std::filesystem::path& state_directory,
                 const provisioner::StopFlag& stop) {
  const auto report = [](const base::Error& error, const std::string& engine) {
    base::log_event(base::LogLevel::kError, "engine_install_failed", {}, error.message,
                    {{"engine", engine}, {"error_code", error.name()}});
  };
  const base::SystemClock clock;
  auto options = installer_options(config, state_directory);
  if (!options) return report(options.error(), "");
  options->clock = &clock;
  options->stop = &stop;
  for (const config::EngineConfig& engine : config.pool_managerd.engines) {
    if (!adapter::setup::is_installed_here(engine)) continue;
    if (stop.requested()) return;
    const auto installed = install(engine, *options);
    if (!installed && installed.error().code != base::ErrorCode::kCancelled) report(installed.error(), engine.name);
  }
}

}  // namespace

InstallsAtStart::InstallsAtStart(const config::Config& config, std::filesystem::path state_directory) {
  const auto& engines = config.pool_managerd.engines;
  if (!config.pool_managerd.provisioning.at_start || std::ranges::none_of(engines, adapter::setup::is_installed_here)) {
    return;
  }
  thread_ = std::thread(
      [this, config, state_directory = std::move(state_directory)] { install_all(config, state_directory, stop_); });
}

InstallsAtStart::~InstallsAtStart() {
  stop_.request();
  if (thread_.joinable()) thread_.join();
}

}  // namespace llorch::pool_managerd::engines
