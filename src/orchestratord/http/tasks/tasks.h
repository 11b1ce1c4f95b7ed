#pragma once
// /v2/tasks and what lies below it.
#include <functional>
#include <unordered_map>
#include <vector>

#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/kept_results.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::tasks {

// Thread-safe. REQUIRES: `context` and `submitter` outlive it.
class Tasks {
 public:
  Tasks(const Context& context, Submitter& submitter, KeptResults& kept_results)
      : context_(context), submitter_(submitter), kept_results_(kept_results) {}

  // With ?stream=true or ?wait=true, the answer is the job's stream or its result instead of a 202. REQUIRES: on the
  // request executor's thread; so does preview(), which tells what submit() would do now.
  void preview(const net::Request& request, const net::ExchangePtr& exchange);
  void submit(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void events(const net::Request& request, const net::ExchangePtr& exchange);
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);
  // The same for a job whose caller is known: `done`, on any thread, once it is decided, also if the job had ended. Errors:
  // JOB_NOT_FOUND, STORE_UNAVAILABLE, QUOTA_EXCEEDED of the throttle, which counts it where the job has ended.
  void cancel(const base::JobId& job_id, const net::http::Principal& caller, std::function<void(base::Result<>)> done);
  // What a job had kept.
  void result(const net::Request& request, const net::ExchangePtr& exchange);
  void remove_result(const net::Request& request, const net::ExchangePtr& exchange);

  // Whose stream is served, to whom.
  struct Wanted {
    base::JobId job_id;
    streams::StreamPtr stream;  // null: it is not held, or the job never was
    net::http::Principal caller;
    bool verbose = false;  // `metrics` say what the job waits for
    bool is_head = false;  // of a live job: answered, and nothing is read
    bool counted = false;  // as a request of the throttle
  };
  using Refused = std::function<void(base::Error)>;
  // Answers the reader from the job's stream, or with the terminal event of its stored row. `refused` is called instead,
  // on any thread, with JOB_NOT_FOUND, STREAM_OFFSET_GONE, STORE_UNAVAILABLE.
  void serve(const Wanted& wanted, streams::Stream::Reader reader, Refused refused);

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
  void attach(const streams::StreamPtr& stream, const streams::Stream::Reader& reader);
  // As long as a client of the stream wants it, its metrics say what the job waits for whenever that is not what was `told`.
  // REQUIRES: called once after begin_telling().
  void tell_wait(const streams::StreamPtr& stream, std::optional<wire::WaitReason> told);
  // Attaches the reader; the head of the answer says what is left of the session's budgets.
  void attach_with_budget(base::SessionId session_id, const streams::StreamPtr& stream, streams::Stream::Reader reader);
  Refused refusing(const net::ExchangePtr& exchange) const;
  void answer_cancel(const Asked& asked, const core::AnswerCancel& answer);
  void list_page(const net::http::Principal& caller, store::Listing listing, const net::ExchangePtr& exchange);
  using LiveJobs = std::unordered_map<base::JobId, core::LiveJob>;
  wire::JobList views_of(const net::http::Principal& caller, const LiveJobs& live,
                         const std::vector<store::JobRecord>& records) const;
  // The stored row, or `refused`.
  void find_stored(const base::JobId& job_id, const net::http::Principal& caller,
                   std::function<void(const store::JobRecord&)> then, Refused refused);
  // The same as a request of the caller's throttle: other than of a live job, the store has to look.
  void find_counted(const base::JobId& job_id, const net::http::Principal& caller,
                    std::function<void(const store::JobRecord&)> then, Refused refused);

  // `then` on the thread of kept files, with the task_id as it is kept.
  void with_task(const net::Request& request, const net::ExchangePtr& exchange,
                 std::function<void(const std::string& task_id)> then);

  const Context& context_;
  Submitter& submitter_;
  KeptResults& kept_results_;
};

}  // namespace llorch::orchestratord::http::tasks
