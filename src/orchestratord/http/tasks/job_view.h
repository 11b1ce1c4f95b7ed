#pragma once
// One job as its client sees it (DECISIONS §2). Pure.
#include <optional>
#include <string>

#include "contract/task.h"
#include "orchestratord/brain/view.h"
#include "orchestratord/jobs/job.h"
#include "orchestratord/state_store/store.h"

namespace llorch::orchestratord::api::tasks {

std::string events_url(const base::JobId& job_id);

// What the brain is told of a job, at admission and after a restart.
jobs::JobSpec job_spec(const state_store::JobRecord& record);

// From the row, and for a live job from what the brain and its stream know that the row does not.
struct LiveDetails {
  brain::LiveJob job;
  std::string last_event_id;
};
contract::JobView job_view(const state_store::JobRecord& record, const std::optional<LiveDetails>& live);

// The terminal event of a finished job as it was sent. REQUIRES a terminal status.
struct TerminalEvent {
  std::string event;  // "end" or "error"
  std::string data;
};
TerminalEvent terminal_event(const state_store::JobProgress& progress);

}  // namespace llorch::orchestratord::api::tasks
