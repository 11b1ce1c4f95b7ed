#include "wire/worker.h"

#include <utility>

#include "base/id.h"
#include "base/sha256.h"
#include "wire/changed_fields.h"
#include "wire/execute_message.h"
#include "wire/field.h"
#include "wire/json_text_fields.h"
#include "wire/request_limits.h"
#include "wire/sampling_fields.h"
#include "wire/task.h"

namespace llorch::wire {

template <>
struct Table<ExecuteImage> {
  using S = ExecuteImage;
  static Fields fields() {
    return {required("file", &S::file, "Base64 of a PNG or JPEG file.", {4, 1 << 30}),
            required("width", &S::width, "Pixels after resizing.", {1, 1 << 20}),
            required("height", &S::height, "Pixels after resizing.", {1, 1 << 20})};
  }
};
template <>
struct Table<EmbeddingOrder> {
  using S = EmbeddingOrder;
  static Fields fields() {
    return {required("input_tokens", &S::input_tokens, "How many of prompt_tokens each input has.",
                     {1, kEmbeddingInputsMax}),
            optional("dimensions", &S::dimensions, "Elements kept of each vector, from the first on.", {1, 1 << 20}),
            optional("scores", &S::scores, "A score of each input is wanted, not its vector.")};
  }
};
template <>
struct Table<ExecuteRequest> {
  using S = ExecuteRequest;
  static Fields own() {
    return {required("job_id", &S::job_id, "", {1, 256}),
            optional("execution_id", &S::execution_id, "Of this run of the job; /cancel names it.", {1, 256}),
            optional("prompt", &S::prompt, "Text; of a model that takes text, or for a worker used alone.",
                     {1, kRequestBytesMax}),
            optional("prompt_tokens", &S::prompt_tokens, "Token ids, special tokens included.", {1, kPromptTokensMax}),
            optional("messages", &S::messages, "A conversation; of a model that has templates of its own.",
                     {2, kRequestBytesMax}),
            optional("prompt_sha256", &S::prompt_sha256, "Of the text behind prompt_tokens, or of messages.", {64, 64}),
            optional("images", &S::images, "In the order of their tokens among prompt_tokens.", {0, 64}),
            optional("embedding", &S::embedding, "Vectors or scores of inputs are wanted, not a continuation."),
            optional("max_tokens", &S::max_tokens, "", {1, kOutputTokensMax}),
            optional("temperature", &S::temperature, "0 is greedy.", {0, 2}),
            optional("stop", &S::stop, "", {0, kStopTextsMax}),
            optional("seed", &S::seed, "", {.min = 0}),
            optional("timeout_ms", &S::timeout_ms, "", {1, 86'400'000})};
  }
  static Fields fields() { return joined({own(), fields_of(&S::sampling, Table<SamplingRequest>::fields())}); }

  static base::Result<> validate(const S& r) {
    if (!base::is_valid_identifier(r.job_id)) {
      return field_error("job_id", "charset", "job_id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
    }
    if (r.prompt.has_value() + r.prompt_tokens.has_value() + r.messages.has_value() != 1) {
      return field_error("prompt", "missing", "give exactly one of prompt, prompt_tokens and messages");
    }
    if (!r.images.empty() && !r.prompt_tokens)
      return field_error("images", "missing", "images go with prompt_tokens, which hold their places");
    if (r.embedding) TRY(validate_embedding(r));
    if (r.sampling.prompt_logprobs.value_or(false) && (!r.prompt_tokens || !r.images.empty()))
      return field_error("prompt_logprobs", "combination", "prompt_logprobs goes with prompt_tokens, without images");
    for (const std::string& s : r.stop) {
      if (s.empty() || s.size() > 512) return field_error("stop", "length", "a stop text has 1 to 512 bytes");
    }
    return validate_sampling(r.sampling, r.temperature);
  }

 private:
  static base::Result<> validate_embedding(const S& r) {
    if (!r.prompt_tokens || !r.images.empty())
      return field_error("embedding", "combination", "embedding goes with prompt_tokens and without images");
    std::size_t left = r.prompt_tokens->size();
    for (const std::int64_t count : r.embedding->input_tokens) {
      if (count < 1 || std::cmp_greater(count, left)) {
        return field_error("embedding.input_tokens", "range",
                           "each input has a token or more, and prompt_tokens hold them all");
      }
      left -= static_cast<std::size_t>(count);
    }
    if (left == 0) return {};
    return field_error("embedding.input_tokens", "range", "prompt_tokens hold more than the inputs");
  }
};
template <>
struct Table<WorkerTokenEvent> {
  using S = WorkerTokenEvent;
  static Fields fields() {
    return {required("t", &S::t), required("i", &S::i),
            optional("id", &S::id, "In the model's vocabulary.", {0, kTokenIdMax}),
            optional("logprobs", &S::logprobs, "When the request asked for them."),
            optional("prompt_logprobs", &S::prompt_logprobs, "Of a token of the prompt.")};
  }
};
template <>
struct Table<WorkerCancelRequest> {
  using S = WorkerCancelRequest;
  static Fields fields() {
    return {required("job_id", &S::job_id, "", {1, 256}),
            optional("execution_id", &S::execution_id, "That of the run, if it came with one.", {1, 256})};
  }
};
template <>
struct Table<WorkerCancelReply> {
  static Fields fields() {
    return {required("job_id", &WorkerCancelReply::job_id), required("status", &WorkerCancelReply::status)};
  }
};
template <>
struct Table<WorkerHealth> {
  using S = WorkerHealth;
  static Fields fields() {
    return {required("status", &S::status),
            required("worker_id", &S::worker_id),
            required("model", &S::model),
            optional("model_digest", &S::model_digest),
            required("resident", &S::resident),
            required("quant_kind", &S::quant_kind),
            required("vram_bytes_used", &S::vram_bytes_used),
            required("tokenizer_kind", &S::tokenizer_kind),
            required("vocab_size", &S::vocab_size),
            optional("context_length", &S::context_length),
            optional("image_tokens_max", &S::image_tokens_max),
            optional("slots_total", &S::slots_total),
            optional("slots_free", &S::slots_free),
            optional("engine_build", &S::engine_build),
            optional("numerics", &S::numerics),
            optional("device_class", &S::device_class),
            optional("sampler", &S::sampler),
            optional("kv_dtype", &S::kv_dtype),
            optional("kv_pages_total", &S::kv_pages_total, "", {0}),
            optional("kv_pages_used", &S::kv_pages_used, "", {0}),
            optional("prefix_hit_tokens", &S::prefix_hit_tokens, "", {0}),
            optional("prefix_miss_tokens", &S::prefix_miss_tokens, "", {0}),
            optional("capabilities", &S::capabilities),
            optional("protocol", &S::protocol),
            optional("memory_architecture", &S::memory_architecture),
            required("uptime_seconds", &S::uptime_seconds)};
  }
};

std::int64_t prompt_events_count(const ExecuteRequest& request) {
  const bool told = request.sampling.prompt_logprobs.value_or(false) && request.prompt_tokens;
  return told ? static_cast<std::int64_t>(request.prompt_tokens->size()) : 0;
}

std::string parameters_sha256(const ExecuteRequest& request) {
  if (request.embedding) return base::to_hex(base::sha256(encode(*request.embedding)));
  return parameters_sha256(request.temperature, request.sampling, request.stop);
}

std::string execute_message(const ExecuteRequest& request) {
  std::string out;
  {
    MembersWriter members(out);
    for_each_changed(request, [&](const Field& field, const std::string& json) { members.begin(field.name) += json; });
  }
  return out;
}

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(EmbeddingOrder)
LLORCH_INSTANTIATE_WIRE(ExecuteRequest)
LLORCH_INSTANTIATE_WIRE(WorkerTokenEvent)
LLORCH_INSTANTIATE_WIRE(WorkerCancelRequest)
LLORCH_INSTANTIATE_WIRE(WorkerCancelReply)
LLORCH_INSTANTIATE_WIRE(WorkerHealth)
