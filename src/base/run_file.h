#pragma once
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace llorch::base {

// Records this process in `path` as one line of JSON {pid, start_ticks, bind?}. `llorch down` signals no process but
// those recorded; `bind` is where the process listens. An empty `bind` is left out. Errors: IO_ERROR.
Result<> write_run_file(const std::filesystem::path& path, std::string_view bind = {});

}  // namespace llorch::base
