#pragma once
// A new file under a temporary name beside the one whose place it takes.
#include <filesystem>

namespace llorch::base {

// What lies under a temporary name of this process's number.
enum class Leftover {
  kStays,  // it may be somebody's
  kGoes,  // if it may: an earlier process of this number left it, or somebody put it there, to have it written through or to own what is
          // written. REQUIRES: one thread makes files beside `path`
};

// The descriptor of a file that nobody had, named in `temporary`; -1, and errno.
int create_beside(const std::filesystem::path& path, unsigned mode, Leftover leftover,
                  std::filesystem::path& temporary);

}  // namespace llorch::base
