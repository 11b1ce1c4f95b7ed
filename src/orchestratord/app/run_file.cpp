#include "orchestratord/app/run_file.h"

#include "base/file.h"
#include "base/run_file.h"

namespace llorch::orchestratord::app {

base::Result<RunFile> RunFile::write(const std::filesystem::path& state_directory, const std::string& bind) {
  const auto folder = state_directory / "run";
  TRY(base::ensure_private_directory(folder));
  const auto path = folder / "orchestratord.json";
  TRY(base::write_run_file(path, bind));
  return RunFile(path);
}

RunFile::~RunFile() {
  std::error_code ec;
  if (!path_.empty()) std::filesystem::remove(path_, ec);
}

}  // namespace llorch::orchestratord::app
