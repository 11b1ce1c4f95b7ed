#pragma once
// Wire types of worker-orcd. Field tables: worker.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/embedding.h"
#include "wire/sampling.h"
#include "wire/task.h"

namespace llorch::wire {

// Of the files of one request together, as base64.
inline constexpr std::size_t kImagesBytesMax = 48 << 20;

// An image of a prompt. Its size as the model sees it is fixed where the prompt's tokens are counted, so that a job that is
// run again is cut into the same patches.
struct ExecuteImage {
  std::string file;  // base64 of a PNG or JPEG file
  std::int64_t width = 0;
  std::int64_t height = 0;
};

// An embedding or rerank job: prompt_tokens hold its inputs, one behind the other, and each input's vector or score is the text of
// one token event, as embedding.h says.
struct EmbeddingOrder {
  std::vector<std::int64_t> input_tokens;  // of each input
  std::optional<std::int64_t> dimensions;  // kept of each vector; omitted: all
  std::optional<bool> scores;              // of each input, in place of its vector; omitted: false
};

// POST /execute. Exactly one of `prompt_tokens` (of a model that takes tokens: orchestratord has tokenised once), `prompt`
// (of one that takes text, or of a worker used alone) and `messages` (of one that takes text and has templates of its own).
struct ExecuteRequest {
  std::string job_id;
  std::optional<std::string> execution_id;  // of this run of the job, for /cancel; a worker used alone needs none
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int32_t>> prompt_tokens;
  std::optional<JsonArray> messages;
  std::optional<std::string> prompt_sha256;  // of the text; with prompt_tokens or messages, for the receipt
  std::vector<ExecuteImage> images;          // in the order of their tokens; with prompt_tokens
  std::optional<EmbeddingOrder> embedding;   // omitted: the prompt is continued
  std::int64_t max_tokens = 2048;
  double temperature = 1.0;
  SamplingRequest sampling;
  std::vector<std::string> stop;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> timeout_ms;
};

// How many events of the prompt's tokens come before those of the output: all or none.
std::int64_t prompt_events_count(const ExecuteRequest& request);

// Of a request, as its receipt says it (task.h).
std::string parameters_sha256(const ExecuteRequest& request);

// The event `token` of the stream that answers /execute; the other events are those of task.h.
inline constexpr std::int64_t kTokenIdMax = 0x7fff'ffff;
struct WorkerTokenEvent {
  std::string t;                   // whole code points; may be empty
  std::int64_t i = 0;              // 0, 1, 2, ...
  std::optional<std::int64_t> id;  // of the token drawn; workers of older builds do not say it
  std::optional<TokenLogprobs> logprobs;
  std::optional<PromptTokenLogprobs> prompt_logprobs;  // as in TokenEvent
};

// POST /cancel. Ends the run that came with this job_id and this execution_id and no other: a call that is late must not
// end the next run of the same job.
struct WorkerCancelRequest {
  std::string job_id;
  std::optional<std::string> execution_id;  // absent: the run that came without one
};
struct WorkerCancelReply {
  std::string job_id;
  std::string status;  // "cancelling" | "unknown"
};

// GET /health
struct WorkerHealth {
  std::string status;  // "healthy" | "unhealthy"
  std::string worker_id;
  std::string model;
  std::string model_digest;
  bool resident = false;
  std::string quant_kind;
  std::int64_t vram_bytes_used = 0;
  std::string tokenizer_kind;
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t> context_length;
  std::int64_t image_tokens_max = 0;  // of one request; 0: takes no images
  std::int64_t slots_total = 1;
  std::int64_t slots_free = 1;
  std::string engine_build;
  std::string numerics;
  std::string device_class;
  std::string sampler;
  std::string kv_dtype;
  std::int64_t kv_pages_total = 0;  // of its cache, now; a page is 64 positions of all layers
  std::int64_t kv_pages_used = 0;   // by running jobs
  // Prompt tokens since it is ready.
  std::int64_t prefix_hit_tokens = 0;   // found in the prefix cache
  std::int64_t prefix_miss_tokens = 0;  // computed
  std::vector<std::string> capabilities;
  std::string protocol = "sse";
  std::string memory_architecture;  // "vram-only" | "host"
  std::int64_t uptime_seconds = 0;
};

}  // namespace llorch::wire
