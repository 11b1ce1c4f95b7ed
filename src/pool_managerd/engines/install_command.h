#pragma once
// pool-managerd --install-engine NAME and --remove-engine NAME: done at once, on this machine, with what happens told as JSON lines on
// standard output, for `llorch engine`.
#include <filesystem>
#include <string>

#include "config/config.h"

namespace llorch::pool_managerd::engines {

// Lines: {"event":"step","kind","detail"}, {"event":"bytes","done","total"}, and as the last one {"event":"done",...the installation},
// {"event":"removed","size_bytes"} or {"event":"error",...the error}. SIGINT and SIGTERM end it. REQUIRES base::block_stop_signals().
// `name`: of an entry; to be removed, also the id of an installation. The exit code is 0 when the last line is no error.
int install_command(const config::Config& config, const std::filesystem::path& state_directory,
                    const std::string& name);
int remove_command(const config::Config& config, const std::string& name);

}  // namespace llorch::pool_managerd::engines
