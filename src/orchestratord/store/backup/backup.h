#pragma once
// One file with everything a state directory needs to go on: the database, and the keys of the payloads in it. Whoever
// reads the file reads the prompts of the jobs that were live then.
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace llorch::orchestratord::store::backup {

struct Paths {
  std::filesystem::path
      directory;  // REQUIRES: the caller holds its lock (see lock_state_directory), if not said otherwise
  std::filesystem::path file;
};
struct Summary {
  std::int64_t jobs_count = 0;       // all of them
  std::int64_t live_jobs_count = 0;  // waiting or running when the backup was made
  std::int64_t bytes = 0;            // of the file
};

// Moves the log into the database and copies both parts to a new file of mode 0600; nobody sees a part of it. NOT_FOUND:
// there is no job store. CONFLICT: the file, or one that is made beside it, exists. CORRUPT_FILE, STORE_UNAVAILABLE, IO_ERROR. While orchestratord runs,
// see Online.
base::Result<Summary> write(const Paths& paths);

// What becomes one file, while it is being made beside it: rows, and the keys of the jobs that are live in them.
struct Parts {
  std::filesystem::path database, keys;
};
Parts parts_of(const std::filesystem::path& file);
void remove(const Parts& parts);
// Writes a part that is there and empty. IO_ERROR.
base::Result<> fill(const std::filesystem::path& part, std::string_view bytes);

// A backup whose parts the orchestratord that owns the directory writes. Only who can write the directory can say where to.
// The parts and what was asked go with this value. What root makes here is the directory's owner's.
class Online {
 public:
  // Makes the parts, empty, and leaves the file's name in the directory. CONFLICT: the file or a part exists, or another one
  // of this directory does. IO_ERROR.
  // `paths.directory` need not be locked here.
  static base::Result<Online> prepare(const Paths& paths);
  Online(Online&& other) noexcept
      : paths_(std::exchange(other.paths_, {})), directory_fd_(std::exchange(other.directory_fd_, -1)) {}
  Online& operator=(Online&&) = delete;
  ~Online();
  // REQUIRES: both parts are whole. Errors: as of write().
  base::Result<Summary> finish() const;

 private:
  explicit Online(int directory_fd) : directory_fd_(directory_fd) {}
  Paths paths_;            // once the request is there
  int directory_fd_ = -1;  // locked
};
// For orchestratord: the file that `prepare` names, once. NOT_FOUND.
base::Result<std::filesystem::path> take_request(const std::filesystem::path& directory);

// Into a directory without a job store. The jobs go on from where they were: what has ended since runs again.
// CONFLICT: there is a job store. CORRUPT_FILE: the file is damaged or none of ours. UNSUPPORTED_FORMAT_VERSION: it was
// written by a newer program. IO_ERROR. Nothing is left behind by a failure. What root restores is the directory's owner's.
base::Result<Summary> restore(const Paths& paths);

}  // namespace llorch::orchestratord::store::backup
