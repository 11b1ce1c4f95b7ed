#pragma once
// GET and DELETE of /v2/tasks and what lies below it.
#include <unordered_map>
#include <vector>

#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http::tasks {

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
  // Answers from the stored row. `reason`: what the job waits for; left out if the row is terminal.
  void show_stored(const Asked& asked, std::optional<wire::WaitReason> reason);
  // Attaches the reader; the head of the answer says what is left of the session's budgets.
  void attach_with_budget(base::SessionId session_id, const streams::StreamPtr& stream, streams::Stream::Reader reader);
  void serve_stored_events(const store::JobRecord& record, const std::optional<streams::EventId>& last_event_id,
                           const net::ExchangePtr& exchange);
  void answer_cancel(const Asked& asked, const core::AnswerCancel& answer);
  void list_page(const net::http::Principal& caller, store::Listing listing, const net::ExchangePtr& exchange);
  using LiveJobs = std::unordered_map<base::JobId, core::LiveJob>;
  wire::JobList views_of(const net::http::Principal& caller, const LiveJobs& live,
                         const std::vector<store::JobRecord>& records) const;
  // The stored row, or an answered error.
  void find_stored(const Asked& asked, std::function<void(const store::JobRecord&)> then);

  const Context& context_;
};

}  // namespace llorch::orchestratord::http::tasks
