#pragma once
// run/orchestratord.json: who runs here and where it listens, for `llorch`.
#include <filesystem>
#include <string>

#include "base/result.h"

namespace llorch::orchestratord::daemon {

// The file exists as long as the value lives.
class RunFile {
 public:
  // {"pid","start_ticks","bind"}: a pid alone may be somebody else's by the time it is read.
  static base::Result<RunFile> write(const std::filesystem::path& state_directory, const std::string& bind);
  // What the process that runs there has recorded. UNREACHABLE: nobody who still runs has.
  static base::Result<std::string> bind_of(const std::filesystem::path& state_directory);
  RunFile(RunFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  RunFile& operator=(RunFile&&) = delete;
  ~RunFile();

 private:
  explicit RunFile(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace llorch::orchestratord::daemon
