#pragma once
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace llorch::base {

// Records this process in `path` as one line of JSON {pid, start_ticks, bind?}: what `llorch down` may signal and where
// the process listens (DECISIONS §3). An empty `bind` is left out. Errors: IO_ERROR.
Result<> write_run_file(const std::filesystem::path& path, std::string_view bind = {});

}  // namespace llorch::base
