#pragma once
// A .tar.gz in memory: POSIX ustar, then gzip.
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace llorch::cli::bundle {

struct ArchiveFile {
  std::string name;  // relative, at most 100 bytes
  std::string content;
};

// Regular files of mode 0600, owned by nobody, all of the time `unix_s`. The same input gives the same bytes. REQUIRES: every name fits.
// Errors: IO_ERROR (zlib does not start).
base::Result<std::string> tar_gz(std::span<const ArchiveFile> files, std::int64_t unix_s);

}  // namespace llorch::cli::bundle
