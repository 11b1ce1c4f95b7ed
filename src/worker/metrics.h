#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "worker/engine_loop.h"

namespace llorch::worker {

struct MetricsInput {
  std::string worker_id;
  std::string quant_kind;
  std::int64_t uptime_seconds = 0;
  std::int64_t slots_total = 0;
  std::int64_t slots_free = 0;
  std::int64_t log_lines_dropped = 0;  // since the process began
  JobCounts counts;
  engine::inference::BatchUsage usage;
  std::vector<engine::plan::StepMeasures> devices;  // by rank; empty: nobody asked for them
};
// The worker_* series in Prometheus text format 0.0.4.
std::string metrics_text(const MetricsInput& input);

}  // namespace llorch::worker
