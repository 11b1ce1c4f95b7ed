#pragma once
// What survives orchestratord: a model of the store with the real one's commit semantics. Committed rows are there after any
// crash, whole groups or nothing; of a commit that failed, an ending may be there after a crash, an admission is not.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orchestratord/jobs/job.h"
#include "sim/kernel/dice.h"
#include "sim/world/request.h"

namespace llorch::sim {

struct Row {
  JobRequest request;
  contract::JobStatus status = contract::JobStatus::kQueued;
  std::int64_t attempts = 0;
  std::int64_t submitted_unix_ms = 0;
  std::int64_t tokens_out = 0;
  std::string event, data, last_event_id;  // of the terminal event
};

struct Disk {
  std::map<std::string, Row> rows;
  std::vector<std::string> order;            // of arrival
  std::map<std::string, std::string> pools;  // id -> endpoint
  std::set<std::string> draining;            // pool ids
};

// What one transition changes.
struct RowChange {
  std::string job;
  contract::JobStatus status = contract::JobStatus::kQueued;
  std::int64_t attempts = 0;
  std::int64_t tokens_out = 0;
  std::string event, data, last_event_id;
};

}  // namespace llorch::sim
