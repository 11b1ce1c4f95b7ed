#pragma once
// Results of jobs that asked to have them kept: `result: {keep_ms}` of POST /v2/tasks, GET and DELETE /v2/tasks/{id}/result. Kept,
// sealed, from before the job is admitted until keep_ms after its end.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/http/tasks/deferred_job.h"

namespace llorch::orchestratord::http::tasks {

// REQUIRES: `context` and `submitter` outlive it, and the context has blobs. submit() may be called on any thread, everything
// else on the thread of kept files.
class KeptResults {
 public:
  static constexpr std::string_view kKind = "result";

  KeptResults(const Context& context, Submitter& submitter) : context_(context), submitter_(submitter) {}

  // Submits a job whose request has `result`. `done` as of Submitter::submit(), besides with the refusals of a new blob.
  void submit(Submission submission, Submitter::Done done);

  // Answers with the result of the task that is kept as `task_id`: the answer of ?wait=true. Refusals: NOT_FOUND (none is kept),
  // CONFLICT (the job has not ended), STORE_UNAVAILABLE.
  void answer(const std::string& task_id, const net::ExchangePtr& exchange) const;
  // Errors: as answer() refuses.
  base::Result<> erase(const std::string& task_id);

  // Goes on with what an earlier process did not finish.
  void resume();

 private:
  // A result that is not here yet.
  struct Open {
    std::string id;
    DeferredJobPtr job;
    std::int64_t keep_ms = 0;
    std::optional<std::int64_t> asked_unix_ms{};  // of an earlier process
    std::string waits_for{};                      // what the last try was refused for; empty once one is admitted
    Submitter::Done created{};  // until the first try is admitted or refused, or its job is found to have failed
    // The same task, submitted again meanwhile.
    std::vector<std::pair<Submission, Submitter::Done>> repeated{};
  };
  using OpenPtr = std::shared_ptr<Open>;

  // Of a job that has ended.
  base::Result<const store::blobs::Blob*> find(const std::string& task_id) const;

  void begin(Submission submission, Submitter::Done done);
  OpenPtr make_open(std::string id, Submission submission) const;
  void submit_again(Submission submission, Submitter::Done done);
  void begin_repeated(const OpenPtr& open);
  void run(const OpenPtr& open);
  void answer_created(const OpenPtr& open, base::Result<Admission> admission);
  void on_done(const OpenPtr& open, base::Result<net::Response> answer);
  void keep(const OpenPtr& open, const net::Response& answer);
  // Gives the result of a request that nobody can read an end, so that it is told, deleted and expires as every other: what the blob holds
  // of it, else an error.
  void end_unreadable(const store::blobs::Blob& blob);
  // Of an answer that is on the disk, of which the status is not.
  int status_of(const store::blobs::Blob& blob) const;

  const Context& context_;
  Submitter& submitter_;
  std::map<std::string, OpenPtr> open_;
};

}  // namespace llorch::orchestratord::http::tasks
