#include "base/state_directory.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace llorch::base {

std::optional<uid_t> foreign_owner(const struct stat& st) {
  const uid_t self = ::geteuid();
  if (self == 0 || st.st_uid == self || st.st_uid == 0) return std::nullopt;
  return st.st_uid;
}

Result<> ensure_state_directory(const std::filesystem::path& path) {
  TRY(ensure_private_directory(path));
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return fail(io_error("cannot stat", path, errno));
  const auto owner = foreign_owner(st);
  if (!owner) return {};
  return fail(ErrorCode::kForbidden,
              fmt::format("the state directory {} is of user {}, who could take over what runs here; choose one of "
                          "your own with --state-dir or LLORCH_STATE_DIR",
                          path.string(), *owner));
}

Result<> give_to_owner_of(const std::filesystem::path& directory, int fd) {
  if (::geteuid() != 0) return {};
  struct stat st {};
  if (::stat(directory.c_str(), &st) != 0) return fail(io_error("cannot stat", directory, errno));
  if (st.st_uid != 0 && ::fchown(fd, st.st_uid, st.st_gid) != 0) {
    return fail(io_error("cannot give a file to the owner of", directory, errno));
  }
  return {};
}

}  // namespace llorch::base
