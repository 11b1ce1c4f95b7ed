#include "base/run_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"

namespace llorch::base {

Result<> write_run_file(const std::filesystem::path& path, std::string_view bind) {
  const int pid = ::getpid();
  const std::uint64_t ticks = TRY(process_start_ticks(pid));
  const std::string where = bind.empty() ? std::string() : fmt::format(",\"bind\":\"{}\"", bind);
  return write_file_atomic(path, fmt::format("{{\"pid\":{},\"start_ticks\":{}{}}}\n", pid, ticks, where));
}

}  // namespace llorch::base
