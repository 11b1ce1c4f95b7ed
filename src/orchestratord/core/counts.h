#pragma once
// What the core counts.
#include <cstdint>
#include <string>

#include "wire/task.h"

namespace llorch::orchestratord::core {

enum class Metric : std::uint8_t {
  kEnqueued,               // label accepted | rejected; priority
  kRejected,               // label: error code
  kQueueDropped,           // label: policy
  kDispatched,             // label: worker_id; priority
  kDispatchEnded,          // label success | failure
  kFinished,               // label completed | failed | cancelled
  kCancelled,              // label: reason
  kTimeouts,               // label: stage
  kRetries,                // label: error code
  kWorkerStarts,           // label success | failure
  kWorkerStops,            // label: evict | idle | threshold | drain | reload | purge | start_timeout
  kDrains,                 // label: drain | reload | purge; pool_id
  kHeartbeatsReceived,     // label: pool_id
  kOptimizerRuns,          // label completed | aborted
  kOptimizerSuggestions,   // label: kind
  kOptimizerImprovements,  // label: kind; the scheduling pass did it
  kTokensIn,               // value
  kTokensOut,              // value
  kQueueWaitMs,            // value, histogram; priority
  kFirstTokenMs,           // value, histogram: from admission; priority
  kDecodeMs,               // value, histogram; priority
};
struct Count {
  Metric metric = Metric::kEnqueued;
  std::string label;
  wire::Priority priority = wire::Priority::kInteractive;
  std::int64_t value = 1;
  std::string pool_id;
};

// To telemetry: one placement decision. That a job waits on for the same reason is not told again.
struct CountPlacement {
  bool assigned = false, pinned = false, fallback = false;
  std::int64_t candidates_considered = 0;
};

}  // namespace llorch::orchestratord::core
