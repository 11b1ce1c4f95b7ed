#include "orchestratord/app/run_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"

namespace llorch::orchestratord::app {

base::Result<RunFile> RunFile::write(const std::filesystem::path& state_directory, const std::string& bind) {
  const auto folder = state_directory / "run";
  TRY(base::ensure_private_directory(folder));
  const std::uint64_t ticks = TRY(base::process_start_ticks(::getpid()));
  const auto path = folder / "orchestratord.json";
  TRY(base::write_file_atomic(
      path, fmt::format("{{\"pid\":{},\"start_ticks\":{},\"bind\":\"{}\"}}\n", ::getpid(), ticks, bind)));
  return RunFile(path);
}

RunFile::~RunFile() {
  std::error_code ec;
  if (!path_.empty()) std::filesystem::remove(path_, ec);
}

}  // namespace llorch::orchestratord::app
