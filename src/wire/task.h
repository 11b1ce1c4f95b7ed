#pragma once
// Wire types between clients and orchestratord (/v2/tasks). Field tables: task.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/id.h"
#include "base/result.h"
#include "wire/embedding.h"
#include "wire/sampling.h"
#include "wire/session.h"
#include "wire/text_or_tokens.h"

namespace llorch::wire {

enum class Priority : std::uint8_t { kInteractive = 0, kBatch = 1 };
enum class OnDisconnect : std::uint8_t { kCancel = 0, kResume = 1 };
enum class Determinism : std::uint8_t { kBestEffort = 0, kStrict = 1 };
enum class JobStatus : std::uint8_t { kQueued, kDispatched, kRunning, kCompleted, kFailed, kCancelled };
enum class StopReason : std::uint8_t { kEos, kMaxTokens, kStop, kContext };
enum class Workload : std::uint8_t { kCompletion, kEmbedding, kRerank };
enum class PlacementMode : std::uint8_t { kAuto, kPrefer, kPin };

constexpr bool is_terminal(JobStatus s) {
  return s == JobStatus::kCompleted || s == JobStatus::kFailed || s == JobStatus::kCancelled;
}

// JSON that is handed on as it came, for what reads it: the chat template.
struct JsonArray {
  std::string text;
};
struct JsonObject {
  std::string text;
};

// Where a job may run (ORCH-3903, OC-CTRL-2013). Kept with the job over restarts; never changes what it computes on a device.
struct Placement {
  PlacementMode mode = PlacementMode::kAuto;
  std::optional<std::string> pin_pool_id;          // kPin: this pool and no other
  std::vector<std::string> prefer_pools;           // kPrefer: these before all others
  std::vector<std::string> avoid_pools;            // never one of these
  std::optional<std::string> require_device_mask;  // on exactly these devices of its pool (device_mask.h)
  bool allow_fallback = true;                      // kPrefer: other pools when no preferred one can take the job now

  auto operator<=>(const Placement&) const = default;
};

// What orchestratord reads back of the parameters it stored with a job; the rest of that object is for operators.
struct StoredParams {
  std::optional<Placement> placement;
};

// Keeps a job's result, sealed, for whoever submitted it.
struct ResultRequest {
  std::int64_t keep_ms = 0;  // from its end on
};

// Another text that a model may look at while it fills in the middle.
struct ExtraFile {
  std::string name;
  std::string text;
};

// POST /v2/tasks. Exactly one spelling of the model must be present (`model`, or `model_ref` of the older form).
struct SubmitRequest {
  std::optional<std::string> model;
  std::optional<std::string> model_ref;
  std::optional<Workload> workload;  // omitted: completion
  // Of a completion exactly one of `prompt` and `messages`. `suffix` and `extra_files` go with `prompt`, the four after
  // `messages` with that.
  std::optional<TextOrTokens> prompt;
  std::optional<bool> parse_special;  // with a text as `prompt`: control tokens that it spells are tokens
  std::optional<std::string>
      suffix;  // what follows on the output: the model fills in between `prompt`, a text, and this
  std::optional<std::vector<ExtraFile>> extra_files;  // with `suffix`; the last one is the nearest
  std::optional<JsonArray> messages;
  std::optional<JsonArray> tools;
  std::optional<JsonArray> documents;
  std::optional<JsonObject> chat_template_kwargs;
  std::optional<bool> add_generation_prompt;  // omitted: true
  // Of embeddings and reranking, which take none of max_tokens, temperature, sampling and stop.
  std::optional<EmbeddingInputs> input;
  std::optional<std::string> query;        // of reranking: what each input, a text, is judged by
  std::optional<std::int64_t> dimensions;  // kept of each vector; omitted: all
  std::optional<std::int64_t> max_tokens;  // omitted: what the context has left, at most what the server allows
  std::optional<std::string> task_id;
  std::optional<std::string> session_id;
  Priority priority = Priority::kInteractive;
  std::optional<double> temperature;  // omitted: 0.7, or 0 with determinism strict
  SamplingRequest sampling;
  std::vector<std::string> stop;
  std::optional<std::uint64_t> seed;
  Determinism determinism = Determinism::kBestEffort;
  OnDisconnect on_disconnect = OnDisconnect::kCancel;
  std::optional<Placement> placement;       // omitted: anywhere
  std::optional<std::int64_t> timeout_ms;   // from dispatch to the end
  std::optional<std::int64_t> deadline_ms;  // from admission to the end
  std::optional<ResultRequest> result;      // omitted: nothing is kept
};

// The rules across fields that decoding checks as well, for a request that was made otherwise. INVALID_PARAMS with details
// {field, reason}.
base::Result<> validate_submission(const SubmitRequest& request);

// The temperature a job runs with.
constexpr double effective_temperature(const SubmitRequest& request) {
  return request.temperature.value_or(request.determinism == Determinism::kStrict ? 0.0 : 0.7);
}

// 202 of POST /v2/tasks.
struct SubmitReply {
  std::string job_id;
  std::string task_id;
  JobStatus status = JobStatus::kQueued;
  std::int64_t queue_position = 0;  // 0 = next to be dispatched
  std::int64_t predicted_start_ms = 0;
  std::int64_t backoff_ms = 0;
  std::string events_url;
  BudgetRemaining budget;  // of its session, with this job's part reserved
};

// Names everything that decided a result and the result's hash, so that a second run can be compared with it.
struct Receipt {
  std::string model_digest;
  std::string engine_build;
  std::string numerics;
  std::string device_class;
  std::string sampler;
  std::string kv_dtype;
  std::uint64_t seed = 0;
  std::string prompt_sha256;
  std::string output_sha256;
  std::int64_t tokens_out = 0;
  std::optional<std::string> parameters_sha256;  // see below; receipts of older builds have none
  // Whether the worker guesses ahead, and how: "ngram", "draft" or "mtp". It decides no byte, and nothing compares it.
  std::optional<std::string> speculation;
  // true: another system's engine made the output, and nothing here says that a second run gives the same bytes.
  std::optional<bool> partial;

  bool operator==(const Receipt&) const = default;
};

// What a request says besides model, prompt, seed and limits, as far as it decides the output: temperature, sampling, stop
// texts. Hex SHA-256; comparable between receipts of one engine build.
std::string parameters_sha256(double temperature, const SamplingRequest& sampling,
                              const std::vector<std::string>& stop);

// The inner object of every error body and of the SSE event `error`.
struct ErrorBody {
  std::string code;
  std::string message;
  bool retriable = false;
  std::optional<std::int64_t> retry_after_ms;
  std::optional<std::string> policy_label;
  std::optional<std::string> correlation_id;
  std::vector<std::pair<std::string, base::DetailValue>> details;  // a JSON object on the wire
};
ErrorBody error_body(const base::Error& error, const base::CorrelationId& correlation_id);
base::Error to_error(const ErrorBody& body);

// GET /v2/tasks/{id}
struct WaitReason {
  std::string code;                            // e.g. WAITING_FOR_WORKER
  std::string human;                           // one sentence
  std::optional<std::int64_t> load_percent{};  // of the model, while a worker loads it
};
struct JobView {
  std::string job_id;
  std::string task_id;
  std::optional<std::string> session_id;
  std::optional<std::string> tenant_id;  // whose job it is, in answers to operators
  JobStatus status = JobStatus::kQueued;
  std::string model;      // as the client wrote it
  std::string model_ref;  // what it resolved to
  Priority priority = Priority::kInteractive;
  std::optional<std::int64_t> queue_position;
  std::optional<std::int64_t> predicted_start_ms;
  std::optional<WaitReason> reason;
  std::string submitted_at;
  std::optional<std::string> dispatched_at;  // sent to the worker that last began it
  std::optional<std::string> started_at;
  std::optional<std::string> finished_at;
  std::optional<std::int64_t> first_token_ms;  // completed: from the worker's acceptance to the first token
  std::optional<std::int64_t> decode_time_ms;  // ended
  std::int64_t attempts = 0;
  std::optional<std::string> worker_id;
  std::optional<std::string> pool_id;
  std::optional<Placement> placement;
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;
  std::optional<StopReason> stop_reason;
  std::optional<ErrorBody> error;
  OnDisconnect on_disconnect = OnDisconnect::kCancel;
  std::string events_url;
  std::optional<std::string> last_event_id;
  std::optional<Receipt> receipt;
};

struct JobList {
  std::vector<JobView> tasks;
  std::optional<std::string> next_before;  // ?before= of the next page; omitted: there is none
};

struct CancelReply {
  std::string job_id;
  std::string status;  // "cancelling" | "cancelled" | the terminal status it already had
};

// Payloads of the SSE events, both worker -> orchestratord and orchestratord -> client.
struct QueuedEvent {
  std::string job_id;
  std::int64_t queue_position = 0;
  std::int64_t predicted_start_ms = 0;
};
struct StartedEvent {
  std::string job_id;
  std::optional<std::string> worker_id;
  std::optional<std::string> model;
  std::optional<std::string> started_at;
  std::uint64_t seed = 0;
  std::optional<std::int64_t> queue_wait_ms;
  std::optional<std::int64_t> queue_position;
  std::optional<std::int64_t> predicted_start_ms;
};
struct TokenEvent {
  std::string t;       // whole code points; may be empty
  std::int64_t i = 0;  // 0, 1, 2, ...
  std::optional<TokenLogprobs> logprobs;
  std::optional<PromptTokenLogprobs> prompt_logprobs;  // a token of the prompt; those come first, and `t` is empty
};
struct MetricsEvent {
  std::optional<std::int64_t> queue_depth;
  std::optional<double> on_time_probability;
  std::optional<std::int64_t> tokens_out;
  std::optional<std::int64_t> decode_time_ms;
  std::optional<std::int64_t> vram_bytes;
  // Of jobs with a session.
  std::optional<bool> kv_warmth;    // on the worker of the session's last job
  std::optional<bool> kv_migrated;  // never
  BudgetRemaining budget;
  // With verbose=true: what the job waits for, as its view has it.
  std::optional<std::string> phase;  // the code
  std::optional<std::string> human;
  std::optional<std::int64_t> load_percent;
};
// Tokens that were proposed ahead of their draw, and how many of them were drawn.
struct SpeculationCounts {
  std::int64_t proposed = 0;
  std::int64_t accepted = 0;
};

struct EndEvent {
  std::string job_id;
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;
  std::int64_t decode_time_ms = 0;
  std::int64_t first_token_ms = 0;  // from the worker's acceptance to the first token
  StopReason stop_reason = StopReason::kEos;
  std::optional<Receipt> receipt;
  BudgetRemaining budget;                        // of its session
  std::optional<SpeculationCounts> speculation;  // absent: nothing was proposed
};

// 200 of POST /v2/tasks?wait=true: the whole output of a job, and what its event `end` says.
struct TaskResult : EndEvent {
  std::string task_id;
  std::string text;
  std::optional<std::vector<TokenLogprobs>> logprobs;               // of each token, where the request asked for them
  std::optional<std::vector<PromptTokenLogprobs>> prompt_logprobs;  // the same of the prompt
  std::optional<std::vector<std::string>> embeddings;  // of embeddings: the vector of each input; `text` is empty
  std::optional<std::vector<double>> scores;           // of reranking: of each input, 0 to 1; `text` is empty
};

}  // namespace llorch::wire
