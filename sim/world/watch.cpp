#include "sim/world/watch.h"

#include <algorithm>

#include "orchestratord/streams/replay/event_id.h"
#include "sim/world/world.h"
#include "wire/json.h"

namespace llorch::sim {

namespace core = orchestratord::core;
namespace streams = orchestratord::streams;

void Watch::heard(const core::Event& event) {
  if (const auto* progress = std::get_if<core::ExecuteProgress>(&event)) {
    if (progress->tokens_out > 0) in_mid_stream_.insert(progress->execution.value);
  } else if (const auto* ended = std::get_if<core::ExecuteEnded>(&event)) {
    in_mid_stream_.erase(ended->execution.value);
  } else if (const auto* answered = std::get_if<core::StartWorkerAnswered>(&event)) {
    starting_.erase(answered->worker_id.value);
  } else if (const auto* cancel = std::get_if<core::CancelRequested>(&event)) {
    if (cancel->reason == orchestratord::core::jobs::CancelReason::kDisconnect) {
      world_.oracle.reached("clients gone cancelled a job");
    }
    // As a reader that is too slow for the others.
    if (cancel->reason == orchestratord::core::jobs::CancelReason::kStreamMemory)
      world_.oracle.stream_lost(cancel->job_id.value);
  }
}

void Watch::commanded(const core::Command& command, const streams::StreamHub& hub) {
  if (const auto* execute = std::get_if<core::Execute>(&command)) {
    const streams::StreamPtr stream = hub.find(execute->job_id);
    if (stream == nullptr) return world_.oracle.violate("a job is sent without a stream: " + execute->job_id.value);
    const auto progress = stream->progress();
    if (progress.tokens_count > 0 && progress.clients_count > 0) world_.oracle.reached("replay under a reading client");
    world_.bug_shift[execute->job_id.value] = progress.tokens_count;
  } else if (const auto* finish = std::get_if<core::Finish>(&command)) {
    finished_ms_[finish->job_id.value] = world_.loop.now_ms();
  } else if (const auto* start = std::get_if<core::StartWorker>(&command)) {
    starting_.insert(start->request.worker_id);
  } else if (std::holds_alternative<core::ReviewQueue>(command)) {
    world_.oracle.reached("long queue reviewed");
  }
}

void Watch::submitted(const std::string& job) {
  submitting_.insert(job);
  if (world_.disk.rows.contains(job)) known_.insert(job);
}

void Watch::submission_answered(const std::string& job, const net::Response& response) {
  submitting_.erase(job);
  const bool was_known = known_.erase(job) > 0;
  if (response.status == 202) {
    if (was_known) world_.oracle.reached("submitted again, the first one had been accepted");
    return world_.oracle.gives_202(job, world_.disk);
  }
  if (!world_.disk.rows.contains(job)) return;
  switch (net::http::error_of(response).code) {
    case base::ErrorCode::kStoreUnavailable:  // nobody could look whether it is there
    case base::ErrorCode::kQueueFull:         // asked on the head, before anybody looks which job it is
    case base::ErrorCode::kQuotaExceeded:
    case base::ErrorCode::kBudgetExceeded: return;
    default: world_.oracle.violate("a job that is on disk is refused: " + job);
  }
}

void Watch::cancel_asked(const std::string& job) const {
  if (submitting_.contains(job)) world_.oracle.reached("cancel before the 202");
}

void Watch::cancel_answered(const std::string& job, const net::Response& response) const {
  if (response.status >= 400) return;
  const std::string status = wire::decode<wire::CancelReply>(response.body).value().status;
  if (status != "cancelling" && status != "queued" && status != "dispatched" && status != "running") {
    world_.oracle.cancel_settled(job, world_.disk);
  }
}

void Watch::events_asked(const streams::StreamPtr& stream, const std::string& last_event_id) const {
  if (stream == nullptr) return;
  const auto progress = stream->progress();
  if (streams::parse_event_id(last_event_id)->seq > progress.id.seq && !progress.finished) {
    world_.oracle.reached("reconnect after restart before the replay came so far");
  }
}

void Watch::events_answered(const std::string& job, int status, bool from_store) const {
  if (status == 500) return world_.oracle.violate("a live job has no stream: " + job);
  if (status == 200 && from_store) return world_.oracle.reached("stored ending served");
  if (status != 410 || !from_store) return;
  world_.oracle.reached("410 for events no longer held");
  const auto finished = finished_ms_.find(job);
  const auto& limits = world_.options.stream;
  // Where memory is short, what was sent goes first (ADR 0018).
  const bool is_short = limits.buffer_bytes_max < config::StreamConfig{}.buffer_bytes_max;
  if (finished != finished_ms_.end() && !is_short &&
      world_.loop.now_ms() - finished->second < std::min(limits.retain_ms, limits.reconnect_grace_ms)) {
    world_.oracle.violate("events are gone before their client could come back: " + job);
  }
}

void Watch::crashes() const {
  if (!in_mid_stream_.empty()) world_.oracle.reached("crash with a job in mid-stream");
  if (!starting_.empty()) world_.oracle.reached("crash with a start in flight");
}

}  // namespace llorch::sim
