#pragma once
// pool-managerd.provisioning.at_start: a starting pool installs the engines that it lacks, while it serves everything else.
#include <filesystem>
#include <thread>

#include "config/config.h"
#include "pool_managerd/provisioner/stop_flag.h"

namespace llorch::pool_managerd::engines {

// On a thread of its own, one engine after the other. One that cannot be installed is logged and passed over: jobs for it are told
// ENGINE_NOT_INSTALLED, and the next start tries again.
class InstallsAtStart {
 public:
  // Nothing begins where the configuration does not ask for it.
  InstallsAtStart(const config::Config& config, std::filesystem::path state_directory);
  InstallsAtStart(const InstallsAtStart&) = delete;
  InstallsAtStart& operator=(const InstallsAtStart&) = delete;
  ~InstallsAtStart();  // ends what runs

 private:
  provisioner::StopFlag stop_;
  std::thread thread_;  // last: it uses the other
};

}  // namespace llorch::pool_managerd::engines
