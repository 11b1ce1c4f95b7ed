#pragma once
// What an installation does with an archive: a directory tree that stays inside of its directory.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool_managerd/provisioner/stop_flag.h"

namespace llorch::pool_managerd::engines {

// Runs a command of the installation; an error where it fails.
using Run = std::function<base::Result<>(std::vector<std::string> command)>;

// `archive` into the existing `directory`: .zip, or a tar archive by `tar`; a file that is neither becomes DIRECTORY/bin/NAME,
// executable. Errors: CORRUPT_FILE (a name that leads out of the directory included), INSUFFICIENT_DISK, IO_ERROR, CANCELLED, those of
// `run`, which is to see that the disk keeps room.
base::Result<> unpack(const std::filesystem::path& archive, const std::filesystem::path& directory,
                      const std::string& tar, const Run& run, const provisioner::StopFlag& stop);

}  // namespace llorch::pool_managerd::engines
