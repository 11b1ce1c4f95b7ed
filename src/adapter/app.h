#pragma once
// worker-adapterd: an engine of another system, behind the contract of a worker.
#include "adapter/options.h"

namespace llorch::adapter {

// Serves until SIGTERM, SIGINT or POST /shutdown. The exit status: 0; 1 when it could not start or its engine went.
int run(const Options& options);

}  // namespace llorch::adapter
