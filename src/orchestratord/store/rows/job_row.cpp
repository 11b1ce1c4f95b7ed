#include "orchestratord/store/rows/job_row.h"

namespace llorch::orchestratord::store {

using wire::JobStatus;

base::Error bad_row(std::string_view column) {
  return base::Error{base::ErrorCode::kCorruptFile,
                     "a row of the job store holds an impossible value in column " + std::string(column),
                     {}};
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
