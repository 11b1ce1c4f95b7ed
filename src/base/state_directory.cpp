#include "base/state_directory.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace llorch::base {

Result<> ensure_state_directory(const std::filesystem::path& path) {
  TRY(ensure_private_directory(path));
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return fail(io_error("cannot stat", path, errno));
  if (const uid_t self = ::geteuid(); self != 0 && st.st_uid != self && st.st_uid != 0) {
    return fail(ErrorCode::kForbidden,
                fmt::format("the state directory {} is of user {}, who could take over what runs here; choose one of "
                            "your own with --state-dir or LLORCH_STATE_DIR",
                            path.string(), st.st_uid));
  }
  return {};
}

}  // namespace llorch::base
