#pragma once
// What a client is told whose next event is not held any more.
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace llorch::orchestratord::streams {

// STREAM_OFFSET_GONE. `last_event_id`: of the terminal event. `seed`: absent of a job that did not start.
base::Error offset_gone(std::string last_event_id, std::optional<std::uint64_t> seed);

}  // namespace llorch::orchestratord::streams
