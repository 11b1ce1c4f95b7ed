#pragma once
// GET and DELETE of /v2/tasks and what lies below it.
#include <unordered_map>
#include <vector>

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
  // Who asks for which job.
  struct Asked {
    base::JobId job_id;
    net::http::Principal caller;
    net::ExchangePtr exchange;
  };
  LiveJobPtr find_live(const Asked& asked) const;
  // `reason`: what it waits for, unless its row says how it ended.
  void show_stored(const Asked& asked, std::optional<contract::WaitReason> reason);
  // With what is left of the job's session in the head of the answer.
  void attach_with_budget(base::SessionId session_id, const streaming::StreamPtr& stream,
                          streaming::Stream::Reader reader);
  void serve_stored_events(const state_store::JobRecord& record, const std::optional<streaming::EventId>& last_event_id,
                           const net::ExchangePtr& exchange);
  void answer_cancel(const Asked& asked, const brain::AnswerCancel& answer);
  void list_page(const net::http::Principal& caller, state_store::Listing listing, const net::ExchangePtr& exchange);
  using LiveJobs = std::unordered_map<base::JobId, brain::LiveJob>;
  contract::JobList views_of(const net::http::Principal& caller, const LiveJobs& live,
                             const std::vector<state_store::JobRecord>& records) const;
  // The stored row, or an answered error.
  void find_stored(const Asked& asked, std::function<void(const state_store::JobRecord&)> then);

  const Context& context_;
};

}  // namespace llorch::orchestratord::api::tasks
