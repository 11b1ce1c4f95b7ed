#pragma once
// What is said of a job that has ended. Pure.
#include <string>

#include "cli/stream/run_job.h"

namespace llorch::cli::stream {

// "queue wait 3 ms · time to first token 40 ms · ..."
std::string stats(const FinishedJob& job);
// One object with the text, the times and the event `end`.
std::string as_json(const FinishedJob& job);

}  // namespace llorch::cli::stream
