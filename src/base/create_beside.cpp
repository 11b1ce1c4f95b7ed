#include "base/create_beside.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

namespace llorch::base {
namespace {

constexpr int kBesideMax = 100;  // beside one file

}  // namespace

// In a container processes have the same number again and again.
int create_beside(const std::filesystem::path& path, unsigned mode, Leftover leftover,
                  std::filesystem::path& temporary) {
  for (int i = 0;; ++i) {
    temporary = path;
    temporary += fmt::format(".{}.{}.tmp", ::getpid(), i);
    if (leftover == Leftover::kGoes) ::unlink(temporary.c_str());
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST || i == kBesideMax) return fd;
  }
}

}  // namespace llorch::base
