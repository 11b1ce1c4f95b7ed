#pragma once
// POST /v2/tasks: from bytes to an admitted job. Everything that can be refused without the core is refused here.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/http/context.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::orchestratord::http::tasks {

struct Submission {
  wire::SubmitRequest request;      // its messages hold no image any more
  std::vector<std::string> images;  // base64 of the files, in the order of the messages
};

// Parses the body and checks what needs no model: JSON, fields, ranges, this server's caps. Errors: INVALID_PARAMS,
// DEADLINE_UNMET.
base::Result<Submission> parse_submission(const std::string& body, const config::LimitsConfig& limits);

// From these and the client's request the API makes what a worker gets. A temperature left out is 0.7, or 0 with
// determinism strict.
struct ExecutionInput {
  base::JobId job_id;
  std::vector<std::int32_t> prompt_tokens;
  std::string prompt_sha256;
  std::vector<wire::ExecuteImage> images{};
  std::uint64_t seed = 0;
};
wire::ExecuteRequest execute_request(const wire::SubmitRequest& request, ExecutionInput input);

// Thread-safe. REQUIRES: `context` outlives it.
class Submitter {
 public:
  explicit Submitter(const Context& context) : context_(context) {}

  // Whether this caller may submit at all now; asked before the body is read. Errors: SHUTTING_DOWN, QUOTA_EXCEEDED,
  // BUDGET_EXCEEDED, QUEUE_FULL.
  base::Result<> check(const net::http::Principal& caller) const;
  void handle(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  // One submission on its way.
  struct Pending {
    net::ExchangePtr exchange;
    base::CorrelationId correlation_id;
    net::http::Principal caller;
    wire::SubmitRequest request;
    std::vector<std::string> images;  // base64
    std::string request_sha256;
    base::JobId job_id;
    std::string task_id;        // as it is kept
    bool client_named = false;  // the client gave the task_id
  };
  using PendingPtr = std::shared_ptr<Pending>;
  static core::sessions::QuotaTable::Standing::Tokens tokens_of(const Pending& pending);

  std::optional<base::Error> early_refusal(const AdmissionBoard::Newcomer& newcomer) const;
  void look_up_task(const PendingPtr& pending);
  void repeat_answer(const PendingPtr& pending, const store::JobRecord& record);
  void find_model(const PendingPtr& pending);
  void tokenise(const PendingPtr& pending, const std::string& model_ref, const models::KnownModel& model);
  void submit(const PendingPtr& pending, const std::shared_ptr<LiveJobData>& job);
  void answer(const PendingPtr& pending, core::AnswerSubmit reply);
  void refuse_pending(const PendingPtr& pending, base::Error error);
  void leave_gate(const PendingPtr& pending);

  const Context& context_;
  std::mutex mutex_;
  // Task ids between their first submission and its answer; a second submission waits for the first.
  std::map<std::string, std::vector<PendingPtr>> gate_;
};

}  // namespace llorch::orchestratord::http::tasks
