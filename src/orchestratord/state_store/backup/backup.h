#pragma once
// One file with everything a state directory needs to go on: the database, and the keys of the payloads in it. Whoever
// reads the file reads the prompts of the jobs that were live then.
#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace llorch::orchestratord::state_store::backup {

struct Paths {
  std::filesystem::path directory;  // REQUIRES: the caller holds its lock (see lock_state_directory)
  std::filesystem::path file;
};
struct Summary {
  std::int64_t jobs_count = 0;       // all of them
  std::int64_t live_jobs_count = 0;  // waiting or running when the backup was made
  std::int64_t bytes = 0;            // of the file
};

// Moves the log into the database and copies both parts to a new file of mode 0600; nobody sees a part of it. NOT_FOUND:
// there is no job store. CONFLICT: the file exists. CORRUPT_FILE, STORE_UNAVAILABLE, IO_ERROR.
base::Result<Summary> write(const Paths& paths);

// Into a directory without a job store. The jobs go on from where they were: what has ended since runs again.
// CONFLICT: there is a job store. CORRUPT_FILE: the file is damaged or none of ours. UNSUPPORTED_FORMAT_VERSION: it was
// written by a newer program. IO_ERROR. Nothing is left behind by a failure.
base::Result<Summary> restore(const Paths& paths);

}  // namespace llorch::orchestratord::state_store::backup
