#pragma once
#include "worker/options.h"

namespace llorch::worker {

// Runs a worker to its end: device, load, self-test, HTTP, ready callback, serve until a stop signal or POST /shutdown.
// The exit code: 0 after an orderly stop, 1 when it could not start, its pool manager refused it, or memory of its
// model left the device.
int run(const Options& options);

}  // namespace llorch::worker
