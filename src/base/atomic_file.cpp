#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/create_beside.h"
#include "base/file.h"

namespace llorch::base {
namespace {

// Errors: an errno, EEXIST where something has the name. Where the file system has no such rename, a link does it; where it has no
// links either, a look before.
int rename_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()), 0;
  if (errno == EEXIST) return EEXIST;
  struct stat st {};
  if (::lstat(to.c_str(), &st) == 0) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  AtomicFile file;
  file.path_ = path;
  file.fd_ = create_beside(path, 0644, Leftover::kStays, file.temporary_);
  if (file.fd_ < 0) return fail(io_error("cannot create", file.temporary_, errno));
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Result<> AtomicFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(io_error("cannot write", temporary_, errno));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<> AtomicFile::commit(bool replaces) {
  if (::fsync(fd_) != 0) return fail(io_error("cannot sync", temporary_, errno));
  struct stat st {};
  if (replaces && ::lstat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    return fail(ErrorCode::kConflict,
                fmt::format("{} is no regular file; it stays as it is: name another file", path_.string()));
  const int error = !replaces                                          ? rename_new(temporary_, path_)
                    : ::rename(temporary_.c_str(), path_.c_str()) != 0 ? errno
                                                                       : 0;
  if (error == EEXIST && !replaces)
    return fail(ErrorCode::kConflict,
                fmt::format("{} appeared while its content was made; it stays as it is", path_.string()));
  if (error != 0) return fail(io_error(replaces ? "cannot replace" : "cannot create", path_, error));
  ::close(std::exchange(fd_, -1));
  return sync_parent_directory(path_);
}

}  // namespace llorch::base
