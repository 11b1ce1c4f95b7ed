#pragma once
// The start of another program, up to the moment it runs.
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace llorch::base {

struct ChildOptions {
  std::vector<std::string> argv;         // REQUIRES not empty; argv[0] an absolute path
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  std::filesystem::path directory;       // empty: the caller's
  int output_fd = -1;                    // of both its outputs; -1: nowhere
  bool leads_group = false;              // a process group of its own
};

// Its pid, once the program runs; else the errno of what failed. It has no standard input, inherits nothing but its outputs, blocks
// no signals and dies with this process.
tl::expected<pid_t, int> start_child(const ChildOptions& options);

}  // namespace llorch::base
