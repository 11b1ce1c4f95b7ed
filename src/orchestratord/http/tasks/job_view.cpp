#include "orchestratord/http/tasks/job_view.h"

#include <boost/json.hpp>

#include "base/assert.h"
#include "base/clock.h"
#include "base/parse_json.h"
#include "orchestratord/store/rows/job_row.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

std::optional<std::string> time_text(const std::optional<std::int64_t>& unix_ms) {
  if (!unix_ms) return std::nullopt;
  return base::rfc3339(*unix_ms);
}

// Rows of older builds have none, and what this program wrote it can read.
std::optional<wire::Placement> placement_of(const store::JobRecord& record) {
  const auto params = wire::decode<wire::StoredParams>(record.params);
  return params ? params->placement : std::nullopt;
}

void add_live(const LiveDetails& live, wire::JobView& view) {
  const core::LiveJob& job = live.job;
  view.status = job.status;
  view.attempts = job.attempts;
  view.queue_position = job.queue_position;
  view.predicted_start_ms = job.predicted_start_ms;
  view.reason = job.reason;
  if (job.worker_id) view.worker_id = job.worker_id->value;
  if (job.pool_id) view.pool_id = job.pool_id->value;
  view.started_at = time_text(job.started_unix_ms);
  view.tokens_out = job.tokens_out;
  if (!live.last_event_id.empty()) view.last_event_id = live.last_event_id;
}

}  // namespace

std::string events_url(const base::JobId& job_id) { return "/v2/tasks/" + job_id.value + "/events"; }

core::jobs::JobSpec job_spec(const store::JobRecord& record) {
  return {.job_id = record.job_id,
          .correlation_id = record.correlation_id,
          .model = record.facts,
          .priority = record.priority,
          .tokens_in = record.tokens_in,
          .max_tokens = record.max_tokens,
          .timeout_ms = record.timeout_ms,
          .deadline_ms = record.deadline_ms,
          .placement = placement_of(record).value_or(wire::Placement{}),
          .session_id = record.session_id ? std::optional(base::SessionId(*record.session_id)) : std::nullopt,
          .tenant_id = record.tenant_id,
          .charged = record.params.starts_with(LLORCH_CHARGED_PARAMS)};
}

base::Result<> check_placement(const std::string& params) {
  boost::system::error_code failed;
  const boost::json::value stored = base::parse_json(params, failed);
  if (failed || !stored.is_object()) {
    return base::fail(base::ErrorCode::kCorruptFile, "the stored parameters are no JSON object");
  }
  const boost::json::value* placement = stored.get_object().if_contains("placement");
  if (placement == nullptr) return {};
  TRY(store::read_stored<wire::Placement>(boost::json::serialize(*placement)));
  return {};
}

wire::JobView job_view(const store::JobRecord& record, const std::optional<LiveDetails>& live) {
  const store::JobProgress& p = record.progress;
  wire::JobView view;
  view.job_id = record.job_id.value;
  view.task_id = record.task_id;
  view.session_id = record.session_id;
  view.status = p.status;
  view.model = record.model;
  view.model_ref = record.model_ref;
  view.priority = record.priority;
  view.submitted_at = base::rfc3339(record.submitted_unix_ms);
  view.dispatched_at = time_text(p.dispatched_unix_ms);
  view.started_at = time_text(p.started_unix_ms);
  view.finished_at = time_text(p.finished_unix_ms);
  view.attempts = p.attempts;
  view.worker_id = p.worker_id;
  view.pool_id = p.pool_id;
  view.placement = placement_of(record);
  view.tokens_in = record.tokens_in;
  view.tokens_out = p.tokens_out.value_or(0);
  view.error = p.error;
  view.on_disconnect = record.on_disconnect;
  view.events_url = events_url(record.job_id);
  view.last_event_id = p.last_event_id;
  view.decode_time_ms = p.decode_time_ms;
  if (p.end) {
    view.first_token_ms = p.end->first_token_ms;
    view.stop_reason = p.end->stop_reason;
    view.receipt = p.end->receipt;
  }
  if (live) add_live(*live, view);
  return view;
}

streams::ReplayLog::Terminal terminal_event(const store::JobProgress& progress) {
  ASSERT(progress.end.has_value() != progress.error.has_value());
  if (progress.end) return *progress.end;
  return *progress.error;
}

}  // namespace llorch::orchestratord::http::tasks
