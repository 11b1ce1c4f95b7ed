#pragma once
// From a request to an admitted job, whatever API it came by. Everything that can be refused without the core is refused
// here.
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/chat/output_reader.h"
#include "orchestratord/http/chat/tool_use.h"
#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/embedding.h"
#include "orchestratord/http/tasks/prompt.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::orchestratord::http::tasks {

// The body of POST /v2/tasks. Errors: INVALID_PARAMS.
base::Result<wire::SubmitRequest> decode_request(const std::string& body);

// Takes the header Idempotency-Key for the task_id, which it must not contradict. Errors: INVALID_PARAMS.
base::Result<> take_idempotency_key(const net::http::Headers& headers, wire::SubmitRequest& request);

// What a request is once its model is known and its prompt is tokens. Of a request that brings several jobs it is made once for each
// prompt. Immutable.
struct Preparation;
using PreparationPtr = std::shared_ptr<const Preparation>;

// Somebody's wish for a job.
struct Submission {
  wire::SubmitRequest request;  // REQUIRES one that wire::decode would take
  net::http::Principal caller;
  base::CorrelationId correlation_id;
  // Of a chat API: messages are told as the model's template wants them, and the answer's calls and thoughts are read.
  std::optional<chat::ToolUse> tool_use{};
  LongInputs long_inputs = LongInputs::kRefuse;  // of embeddings
  LongOutputs long_outputs = LongOutputs::kRefuse;
  std::int64_t context_tokens = 0;  // that the model is to have; 0: as many as there are
  // The throttle has counted the request that this came with. False where one request or batch brings several: each counts.
  bool counted = true;
  // Of a job that stands for one that has completed, was charged, and whose tokens are gone: the max_tokens of that one, so that it ends
  // where that one did. No quota and no session's budget refuses it, and none is charged. Never of a client's request.
  std::optional<std::int64_t> charged_max_tokens{};
  // Jobs that the same request is yet to bring. One that names no max_tokens leaves each an equal share of what its day and its session have left.
  std::int64_t jobs_to_come = 0;
  // How many jobs, this one included, make one answer that is held until all have ended; 1 as well where each token is passed on.
  std::int64_t jobs_of_answer = 1;
  // Whether the admission is to have its preparation, for another job of the same request with the same prompt.
  bool keeps_preparation = false;
  // That of such a job; then `request` is not looked at but for its seed. REQUIRES a request without a task_id.
  PreparationPtr prepared{};
  // Submitted by an earlier process under the same task_id, from the request that was kept: whatever that process read in it, it is the
  // same one. Never of a client's request.
  bool is_resumed = false;
  // Fields of request.sampling whose values are the API's and not the client's: an engine that does not know one goes without it.
  std::vector<std::string_view> api_defaults{};
};

// A submission's job: durable, and either new or that of an earlier submission under the same task_id.
struct Admission {
  wire::SubmitReply reply;    // with ids as the caller knows them
  streams::StreamPtr stream;  // null: the job has ended, and its tokens are not held any more
  // Of a submission with a tool_use whose answer may hold calls or thoughts; null: it is content, all of it.
  std::shared_ptr<const chat::Reading> reading{};
  std::int64_t tokens_in = 0;              // of the prompt; 0 of an earlier submission
  std::vector<std::int64_t> cut_inputs{};  // EmbeddingPrompt::cut_inputs
  PreparationPtr prepared{};               // Submission::keeps_preparation
};

// From these and the client's request the API makes what a worker gets. A temperature left out is 0.7, or 0 with
// determinism strict.
struct ExecutionInput {
  base::JobId job_id;
  // Of a model that takes tokens; of one that takes text the request's prompt or messages go along as they are.
  std::optional<std::vector<std::int32_t>> prompt_tokens;
  std::int64_t tokens_in = 0;
  std::string prompt_sha256;
  std::vector<wire::ExecuteImage> images{};
  std::optional<wire::EmbeddingOrder> embedding{};
  std::int64_t max_tokens = 0;  // of embeddings: inputs
  std::uint64_t seed = 0;
};
wire::ExecuteRequest execute_request(const wire::SubmitRequest& request, ExecutionInput input);

struct Preparation {
  FoundModel found;
  wire::SubmitRequest request;  // as the model wants it, without what `input` has of it
  ExecutionInput input;         // but for what is each job's: id, seed, max_tokens
  std::shared_ptr<const chat::Reading> reading{};
  std::vector<std::int64_t> cut_inputs{};
  std::string request_sha256{};  // of the first job
};

// What makes two submissions of one task_id the same; kept with the job, and compared by later versions: a field that is added to a request
// is a std::optional, which is not hashed where no client gives it. How a prompt is read is its API's affair, and not among it.
std::string request_sha256(wire::SubmitRequest request, const std::vector<std::string>& images);

// Thread-safe. REQUIRES: `context` outlives it.
class Submitter {
 public:
  explicit Submitter(const Context& context) : context_(context) {}

  // Whether this caller may submit at all now; asked before the body is read. Errors: SHUTTING_DOWN, QUOTA_EXCEEDED,
  // BUDGET_EXCEEDED, QUEUE_FULL.
  base::Result<> check(const net::http::Principal& caller) const;
  // The same of a request whose body may name a task that was accepted before: that one is found again whatever its caller has used
  // and however full the queue is, so submit() asks for these. Errors: SHUTTING_DOWN, QUOTA_EXCEEDED of the throttle.
  base::Result<> check_arrival(const net::http::Principal& caller) const;

  // Counts what the core refused a caller on arrival, as the core counts the submissions that it refuses.
  void count_refusal(const base::Error& error, wire::Priority priority = wire::Priority::kInteractive) const;

  // Called once, on any thread, with the admitted job or the refusal; not at all if orchestratord ends first, whose
  // callers then drop what they hold.
  using Done = std::function<void(base::Result<Admission>)>;
  // Takes long for a long prompt: it is tokenised. REQUIRES: on the request executor's thread.
  void submit(Submission submission, Done done);

  // What submit() would do now. Nothing is admitted, and no metric counts it. `done` as of submit(), with an
  // error where the request itself is none that could ever be admitted.
  using PreviewDone = std::function<void(base::Result<wire::JobPreview>)>;
  void preview(Submission submission, PreviewDone done);

 private:
  // One submission on its way.
  struct Pending {
    Done done;
    PreviewDone previewed;  // instead of `done`
    base::CorrelationId correlation_id;
    net::http::Principal caller;
    wire::SubmitRequest request;
    std::vector<std::string> images;  // base64
    std::string request_sha256;
    bool is_resumed = false;
    base::JobId job_id;
    std::string task_id;        // as it is kept
    bool client_named = false;  // the client gave the task_id
    bool counted = true;        // by the throttle, or the core is about to
    std::optional<chat::ToolUse> tool_use;
    std::shared_ptr<const chat::Reading> reading;  // of the answer
    std::int64_t tokens_in = 0;                    // of the prompt
    LongInputs long_inputs = LongInputs::kRefuse;
    LongOutputs long_outputs = LongOutputs::kRefuse;
    std::optional<std::int64_t>
        session_tokens;  // that its session has left; only where the request leaves max_tokens to us
    std::int64_t context_tokens = 0;
    std::optional<std::int64_t> charged_max_tokens;
    std::int64_t jobs_to_come = 0;
    std::int64_t jobs_of_answer = 1;
    bool keeps_preparation = false;
    PreparationPtr prepared;  // Submission::prepared, or the one to keep
    std::vector<std::string_view> api_defaults;
    std::vector<std::int64_t> cut_inputs;
  };
  using PendingPtr = std::shared_ptr<Pending>;
  core::sessions::QuotaTable::Standing::Tokens tokens_of(const Pending& pending) const;

  base::Result<PendingPtr> take(Submission submission) const;
  // Of the request what its job is made of: with images apart, or as it was prepared before.
  base::Result<> take_request(Submission& submission, Pending& pending) const;
  std::optional<base::Error> early_refusal(const AdmissionBoard::Newcomer& newcomer) const;
  base::Result<> answer_head(std::optional<base::Error> error) const;
  void look_up_task(const PendingPtr& pending);
  void repeat_answer(const PendingPtr& pending, const store::JobRecord& record);
  void find_reading(const PendingPtr& pending, Admission admission);
  void find_model(const PendingPtr& pending);
  // Errors: INVALID_PARAMS.
  base::Result<> check_context(const Pending& pending, const models::KnownModel& model) const;
  // Keeps the preparation where the submission asks for that.
  void prepare_job(const PendingPtr& pending, const FoundModel& found);
  // What the model makes of the prompt; leaves its request as the model wants it. Errors: INVALID_PARAMS.
  base::Result<ExecutionInput> tokenise(Pending& pending, const models::KnownModel& model) const;
  base::Result<ExecutionInput> hand_on_text(Pending& pending, const models::KnownModel& model) const;
  base::Result<ExecutionInput> tokenise_inputs(Pending& pending, const models::KnownModel& model) const;
  // `input`: but for what is the job's own.
  void make_job(const PendingPtr& pending, const FoundModel& found, ExecutionInput input);
  std::int64_t max_tokens_of(const Pending& pending, const wire::ModelFacts& facts, const ExecutionInput& input) const;
  // Goes on with `then` on the request executor's thread, once what the session has left is known, if that matters.
  void ask_session(const PendingPtr& pending, std::function<void()> then);
  void enqueue(const PendingPtr& pending, const std::shared_ptr<LiveJobData>& job);
  void answer(const PendingPtr& pending, const streams::StreamPtr& stream, core::AnswerSubmit reply);
  void finish(const PendingPtr& pending, base::Result<Admission> result);

  const Context& context_;
  std::mutex mutex_;
  // Task ids between their first submission and its answer; a second submission waits for the first.
  std::map<std::string, std::vector<PendingPtr>> gate_;
};

}  // namespace llorch::orchestratord::http::tasks
