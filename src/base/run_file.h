#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace llorch::base {

// Records this process in `path` as one line of JSON {pid, start_ticks, bind?}. `llorch down` signals no process but
// those recorded; `bind` is where the process listens. An empty `bind` is left out. Errors: IO_ERROR.
Result<> write_run_file(const std::filesystem::path& path, std::string_view bind = {});

// Whether the process of such a record still runs. Where /proc hides it (hidepid does so with daemons, which nobody may trace, even
// from their own user), a process of this pid that we may signal counts.
bool recorded_process_runs(int pid, std::uint64_t start_ticks);

}  // namespace llorch::base
