#pragma once
#include <filesystem>

#include "base/result.h"

namespace llorch::base {

// ensure_private_directory(), and FORBIDDEN for a directory of somebody else: its owner is neither this user nor root. Root may use the
// directory of any user, as it is a service user's or that of a container's host. Who else may write into it is its owner's affair: all
// may into the volumes of many a container.
Result<> ensure_state_directory(const std::filesystem::path& path);

}  // namespace llorch::base
