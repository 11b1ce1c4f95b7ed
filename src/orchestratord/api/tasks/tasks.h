#pragma once
// GET and DELETE of /v2/tasks and what lies below it.
#include "orchestratord/api/context.h"

namespace llorch::orchestratord::api::tasks {

// Thread-safe. REQUIRES: `context` outlives it.
class Tasks {
 public:
  explicit Tasks(const Context& context) : context_(context) {}

  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void events(const net::Request& request, const net::ExchangePtr& exchange);
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  // `reason`: what it waits for, unless its row says how it ended.
  void show_stored(const base::JobId& job_id, std::optional<contract::WaitReason> reason,
                   const net::ExchangePtr& exchange);
  // With what is left of the job's session in the head of the answer.
  void attach_with_budget(base::SessionId session_id, const streaming::StreamPtr& stream,
                          streaming::Stream::Reader reader);
  void serve_stored_events(const state_store::JobRecord& record, const std::optional<streaming::EventId>& last_event_id,
                           const net::ExchangePtr& exchange);
  void answer_cancel(const net::ExchangePtr& exchange, brain::AnswerCancel answer);
  // The stored row, or an answered error.
  void find_stored(const base::JobId& job_id, const net::ExchangePtr& exchange,
                   std::function<void(const state_store::JobRecord&)> then);

  const Context& context_;
};

}  // namespace llorch::orchestratord::api::tasks
