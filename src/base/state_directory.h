#pragma once
#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "base/result.h"

namespace llorch::base {

// The owner, where that is neither this user nor root. Root itself may use what belongs to any user.
std::optional<uid_t> foreign_owner(const struct stat& st);

// ensure_private_directory(), and FORBIDDEN for a directory with a foreign owner: to root it may be a service user's or that of a
// container's host. Who else may write into it is its owner's affair: all may into the volumes of many a container.
Result<> ensure_state_directory(const std::filesystem::path& path);

// As root: gives an open file to the owner of `directory`, whose service is to use it. REQUIRES: this process has created the file, so
// that it is nobody else's under another name. As anybody else it does nothing. Errors: IO_ERROR.
Result<> give_to_owner_of(const std::filesystem::path& directory, int fd);

}  // namespace llorch::base
