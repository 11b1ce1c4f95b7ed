#pragma once
// Another program, run to its end.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::base {

struct RunCommandOptions {
  std::vector<std::string> argv;         // REQUIRES not empty; argv[0] an absolute path
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  std::filesystem::path directory;       // empty: the caller's
  int output_fd = -1;                    // of both its outputs; -1: nowhere
  std::int64_t timeout_ms = 60'000;
  std::function<bool()> stop;  // asked ten times a second; may be null
};

// Its exit status. It has no standard input, leads a process group of its own and dies with this process; whatever it started is
// killed with it when it is ended early. Blocks. Errors: IO_ERROR (it cannot be started, or a signal ended it), TIMEOUT, CANCELLED.
Result<int> run_command(const RunCommandOptions& options);

}  // namespace llorch::base
