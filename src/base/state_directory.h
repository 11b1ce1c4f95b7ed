#pragma once
#include <filesystem>

#include "base/result.h"

namespace llorch::base {

// ensure_private_directory(), and FORBIDDEN for a directory that somebody else may change: its owner is neither this user nor root, or
// others may write into it. Root may use the directory of any user, as it is a service user's or that of a container's host.
Result<> ensure_state_directory(const std::filesystem::path& path);

}  // namespace llorch::base
