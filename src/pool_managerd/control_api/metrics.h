#pragma once
// The pool_mgr_* series as Prometheus text, computed from the cores when asked. Pure.
#include <cstdint>
#include <string>

#include "pool_managerd/provisioner/provisioner.h"
#include "pool_managerd/registration/registration.h"
#include "pool_managerd/worker_lifecycle/lifecycle.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::control_api {

struct MetricsInput {
  wire::PoolState state;
  worker_lifecycle::Counters workers;
  registration::Counters registration;
  provisioner::PullCounters pulls;
  bool connected = false;
  std::int64_t log_lines_dropped = 0;  // since the process began
};
std::string metrics_text(const MetricsInput& input);

}  // namespace llorch::pool_managerd::control_api
