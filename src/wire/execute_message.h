#pragma once
#include <string>

#include "wire/worker.h"

namespace llorch::wire {

// JSON of the request without the members that have their defaults: a worker of an older build, which refuses what it does not know, takes
// every job that uses nothing newer. It is read as encode() is.
std::string execute_message(const ExecuteRequest& request);

}  // namespace llorch::wire
