#pragma once
// One job as GET /v2/tasks/{id} shows it to its client. Pure.
#include <optional>
#include <string>

#include "orchestratord/core/jobs/job.h"
#include "orchestratord/core/view.h"
#include "orchestratord/store/store.h"
#include "orchestratord/streams/replay/replay_log.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::tasks {

std::string events_url(const base::JobId& job_id);

// The part of a job that the core gets, at admission and after a restart.
core::jobs::JobSpec job_spec(const store::JobRecord& record);
// Whether job_spec() leaves out nothing of where a live job may run. `params`: JobRecord::params. Errors: those of
// store::read_stored().
base::Result<> check_placement(const std::string& params);

// What core and stream know of a live job beyond its row.
struct LiveDetails {
  core::LiveJob job;
  std::string last_event_id;
};
wire::JobView job_view(const store::JobRecord& record, const std::optional<LiveDetails>& live);

// The terminal event of a finished job. REQUIRES a terminal status.
streams::ReplayLog::Terminal terminal_event(const store::JobProgress& progress);

}  // namespace llorch::orchestratord::http::tasks
