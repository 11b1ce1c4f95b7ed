#include "orchestratord/store/rows/job_row.h"

#include <fmt/core.h>

namespace llorch::orchestratord::store {

using wire::JobStatus;

base::Error bad_row(std::string_view column) {
  return base::Error{base::ErrorCode::kCorruptFile,
                     "a row of the job store holds an impossible value in column " + std::string(column),
                     {}};
}

base::Error unreadable_ending() {
  return base::Error{base::ErrorCode::kCorruptFile,
                     "the job has ended, and how cannot be read in the job store (column terminal_event); submit it "
                     "again for its answer",
                     {}};
}

base::Error newer_job(const base::JobId& job_id, const base::Error& why) {
  return base::Error{
      base::ErrorCode::kUnsupportedFormatVersion,
      fmt::format("job {} was accepted by another version of orchestratord, and this one cannot run it as it was "
                  "accepted ({}); run that version until the job has ended",
                  job_id.value, why.message),
      {}}
      .with("job_id", job_id.value);
}

std::optional<std::string> outcome_of(const JobProgress& p) {
  switch (p.status) {
    case JobStatus::kCompleted: return "success";
    case JobStatus::kCancelled: return "cancelled";
    case JobStatus::kFailed: return p.error && p.error->code == "TIMEOUT" ? "timeout" : "error";
    default: return std::nullopt;
  }
}

std::optional<std::string> terminal_event_of(const JobProgress& p) {
  if (p.end) return wire::encode(*p.end);
  if (p.error) return wire::encode(*p.error);
  return std::nullopt;
}

}  // namespace llorch::orchestratord::store
