#include "wire/task.h"

#include <algorithm>

#include "base/sha256.h"
#include "wire/budget_fields.h"
#include "wire/device_mask.h"
#include "wire/embedding_fields.h"
#include "wire/field.h"
#include "wire/json_text_fields.h"
#include "wire/request_limits.h"
#include "wire/sampling_fields.h"

namespace llorch::wire {

template <>
struct EnumNames<Priority> {
  static constexpr auto names = std::array{std::pair{Priority::kInteractive, std::string_view("interactive")},
                                           std::pair{Priority::kBatch, std::string_view("batch")}};
};
template <>
struct EnumNames<OnDisconnect> {
  static constexpr auto names = std::array{std::pair{OnDisconnect::kCancel, std::string_view("cancel")},
                                           std::pair{OnDisconnect::kResume, std::string_view("resume")}};
};
template <>
struct EnumNames<Determinism> {
  static constexpr auto names = std::array{std::pair{Determinism::kBestEffort, std::string_view("best_effort")},
                                           std::pair{Determinism::kStrict, std::string_view("strict")}};
};
template <>
struct EnumNames<JobStatus> {
  static constexpr auto names = std::array{std::pair{JobStatus::kQueued, std::string_view("queued")},
                                           std::pair{JobStatus::kDispatched, std::string_view("dispatched")},
                                           std::pair{JobStatus::kRunning, std::string_view("running")},
                                           std::pair{JobStatus::kCompleted, std::string_view("completed")},
                                           std::pair{JobStatus::kFailed, std::string_view("failed")},
                                           std::pair{JobStatus::kCancelled, std::string_view("cancelled")}};
};
template <>
struct EnumNames<StopReason> {
  static constexpr auto names = std::array{std::pair{StopReason::kEos, std::string_view("eos")},
                                           std::pair{StopReason::kMaxTokens, std::string_view("max_tokens")},
                                           std::pair{StopReason::kStop, std::string_view("stop")},
                                           std::pair{StopReason::kContext, std::string_view("context")}};
};

template <>
struct EnumNames<Workload> {
  static constexpr auto names = std::array{std::pair{Workload::kCompletion, std::string_view("completion")},
                                           std::pair{Workload::kEmbedding, std::string_view("embedding")},
                                           std::pair{Workload::kRerank, std::string_view("rerank")}};
};
template <>
struct EnumNames<PlacementMode> {
  static constexpr auto names = std::array{std::pair{PlacementMode::kAuto, std::string_view("auto")},
                                           std::pair{PlacementMode::kPrefer, std::string_view("prefer")},
                                           std::pair{PlacementMode::kPin, std::string_view("pin")}};
};

template <>
struct Table<Placement> {
  using S = Placement;
  static Fields fields() {
    return {optional("mode", &S::mode, "pin: one pool only; prefer: some pools before the others; auto: any."),
            optional("pin_pool_id", &S::pin_pool_id, "With mode pin: the pool. There is no fallback.", {1, 256}),
            optional("prefer_pools", &S::prefer_pools, "With mode prefer: the pools to try first.", {0, 16}),
            optional("avoid_pools", &S::avoid_pools, "Pools that never get the job.", {0, 16}),
            optional("require_device_mask", &S::require_device_mask,
                     "The gpu_id a worker must be on, exactly; of several devices 0,1.", {1, 128}),
            optional("allow_fallback", &S::allow_fallback,
                     "With mode prefer: take another pool when no preferred one can run the job now.")};
  }

  static base::Result<> validate(const S& p) {
    if (p.pin_pool_id.has_value() != (p.mode == PlacementMode::kPin)) {
      return field_error("placement.pin_pool_id", "combination", "mode pin and pin_pool_id go together");
    }
    if (p.prefer_pools.empty() == (p.mode == PlacementMode::kPrefer)) {
      return field_error("placement.prefer_pools", "combination",
                         "mode prefer and a prefer_pools that is not empty go together");
    }
    for (const auto& [name, pools] :
         {std::pair{"placement.prefer_pools", &p.prefer_pools}, std::pair{"placement.avoid_pools", &p.avoid_pools}}) {
      for (const std::string& id : *pools) {
        if (!base::is_valid_identifier(id)) return bad_id(name);
      }
    }
    if (p.pin_pool_id && !base::is_valid_identifier(*p.pin_pool_id)) return bad_id("placement.pin_pool_id");
    if (p.require_device_mask) TRY(check_device_mask(*p.require_device_mask, "placement.require_device_mask"));
    const auto avoided = [&](const std::string& id) { return std::ranges::count(p.avoid_pools, id) > 0; };
    if ((p.pin_pool_id && avoided(*p.pin_pool_id)) || std::ranges::any_of(p.prefer_pools, avoided)) {
      return field_error("placement.avoid_pools", "combination", "a pool is wanted and avoided at the same time");
    }
    return {};
  }

 private:
  static tl::unexpected<base::Error> bad_id(std::string_view field) {
    return field_error(field, "charset", "pool ids are 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
};

template <>
struct Table<StoredParams> {
  static Fields fields() { return {optional("placement", &StoredParams::placement)}; }
};

template <>
struct Table<ResultRequest> {
  static Fields fields() {
    return {required("keep_ms", &ResultRequest::keep_ms, "How long the result is kept after the job's end.",
                     {1, 31'536'000'000})};
  }
};

template <>
struct Table<ExtraFile> {
  static Fields fields() {
    return {required("name", &ExtraFile::name, "Path or name.", {0, 4096}),
            required("text", &ExtraFile::text, "What is in it.", {0, 4 << 20})};
  }
};

template <>
struct Table<SubmitRequest> {
  using S = SubmitRequest;
  static Fields own() {
    return {
        optional(
            "model", &S::model,
            "Model reference: an alias, file:/absolute/path (a .gguf file or a Hugging Face directory) or hf:org/repo.",
            {1, 512}),
        optional("model_ref", &S::model_ref, "Older spelling of `model`; give exactly one of the two.", {1, 512}),
        optional("workload", &S::workload,
                 "What is wanted: a completion of `prompt` or `messages`, embeddings of `input`, or how well each "
                 "`input` answers "
                 "`query`. Omitted: completion."),
        optional("prompt", &S::prompt,
                 "Text to continue, or its token ids; this or `messages`. Empty only with `suffix`.",
                 {0, kRequestBytesMax}),
        optional(
            "parse_special", &S::parse_special,
            "With a text as `prompt`, and without `suffix`: control tokens that it spells are tokens. Omitted: false, "
            "they are text."),
        optional(
            "suffix", &S::suffix,
            "What follows on the output: the model fills in between `prompt`, a text, and this. Needs a model with "
            "tokens for it.",
            {0, 4 << 20}),
        optional("extra_files", &S::extra_files, "With `suffix`: other texts the model may look at, the nearest last.",
                 {0, kExtraFilesMax}),
        optional("messages", &S::messages, "Conversation to continue, for the model's chat template.",
                 {0, kRequestBytesMax}),
        optional("tools", &S::tools, "Functions the model may call, for the chat template.", {0, 4 << 20}),
        optional("documents", &S::documents, "Texts the model may quote, for the chat template.", {0, 4 << 20}),
        optional("chat_template_kwargs", &S::chat_template_kwargs, "More variables for the chat template.",
                 {0, 1 << 16}),
        optional("add_generation_prompt", &S::add_generation_prompt,
                 "Whether the chat template ends with the start of an answer. Omitted: true."),
        optional("input", &S::input,
                 "Text or token ids, or a list of several: each becomes a vector, or each text a score.",
                 {1, kRequestBytesMax}),
        optional("query", &S::query, "Of workload rerank: what the texts of `input` are judged by.", {1, 4 << 20}),
        optional("dimensions", &S::dimensions, "Of each vector, from the first on. Omitted: the model's.",
                 {1, 1 << 20}),
        optional("max_tokens", &S::max_tokens,
                 "Tokens to generate at most. Omitted: what the context has left after the prompt, within the server's "
                 "limit.",
                 {1, kOutputTokensMax}),
        optional("task_id", &S::task_id,
                 "The client's own id; a repeated call with the same body is answered the same.", {1, 256}),
        optional("session_id", &S::session_id,
                 "Session the job belongs to; made by its first job if nobody made it before.", {1, 256}),
        optional("priority", &S::priority, "Class of the queue."),
        optional("temperature", &S::temperature, "0 is greedy. Omitted: 0.7, or 0 with determinism strict.", {0, 2}),
        optional("stop", &S::stop, "Texts that end the output; they are not part of it.", {0, kStopTextsMax}),
        optional("seed", &S::seed, "Omitted: one is chosen and returned.", {.min = 0}),
        optional("determinism", &S::determinism, "strict makes an omitted temperature 0."),
        optional("on_disconnect", &S::on_disconnect,
                 "What a lost client means: cancel the job, or keep it for a reconnect."),
        optional("placement", &S::placement, "Which pools and devices may run the job. Omitted: any."),
        optional("timeout_ms", &S::timeout_ms, "Limit on the run, from dispatch to the end.", {1, 86'400'000}),
        optional("deadline_ms", &S::deadline_ms, "Limit from admission to the end.", {1, 604'800'000}),
        optional("result", &S::result, "Keeps the result for GET /v2/tasks/{id}/result. Omitted: nothing is kept.")};
  }
  static Fields fields() { return joined({own(), fields_of(&S::sampling, Table<SamplingRequest>::fields())}); }

  static base::Result<> validate(const S& r) {
    if (r.model.has_value() == r.model_ref.has_value()) {
      return field_error("model", "missing", "give exactly one of model and model_ref");
    }
    TRY(validate_workload(r));
    TRY(validate_prompt(r));
    if (!r.messages && (r.tools || r.documents || r.chat_template_kwargs || r.add_generation_prompt)) {
      return field_error("messages", "combination",
                         "tools, documents, chat_template_kwargs and add_generation_prompt need messages");
    }
    for (const auto* id : {&r.task_id, &r.session_id}) {
      if (id->has_value() && !base::is_valid_identifier(**id)) {
        return field_error(id == &r.task_id ? "task_id" : "session_id", "charset",
                           "ids are 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
      }
    }
    for (const std::string& s : r.stop) {
      if (s.empty() || s.size() > 512) return field_error("stop", "length", "a stop text has 1 to 512 bytes");
    }
    return validate_sampling(r.sampling, effective_temperature(r));
  }

 private:
  static constexpr double kExtraFilesMax = 256;

  static base::Result<> validate_prompt(const S& r) {
    if (r.extra_files && !r.suffix) return field_error("extra_files", "combination", "extra_files needs suffix");
    if (r.suffix && (!r.prompt || r.prompt->has_tokens())) {
      return field_error("suffix", "combination", "suffix needs a prompt, a text: the output stands between the two");
    }
    if (r.parse_special && (!r.prompt || r.suffix)) {
      return field_error("parse_special", "combination",
                         "parse_special is of a whole prompt: send prompt, and leave suffix out");
    }
    if (r.prompt && r.prompt->bytes() == 0 && !r.suffix) {
      return field_error("prompt", "length", "prompt is empty; give at least one byte of text");
    }
    return {};
  }

  static base::Result<> validate_workload(const S& r) {
    const Workload workload = r.workload.value_or(Workload::kCompletion);
    const bool has_inputs = workload != Workload::kCompletion;
    if (has_inputs != r.input.has_value() || (r.dimensions && workload != Workload::kEmbedding))
      return field_error("input", "combination",
                         "workloads embedding and rerank go with input; dimensions needs embedding");
    if ((workload == Workload::kRerank) != r.query.has_value())
      return field_error("query", "combination", "workload rerank and query go together");
    if (!has_inputs && r.prompt.has_value() == r.messages.has_value())
      return field_error("prompt", "missing", "give exactly one of prompt and messages");
    if (!has_inputs) return {};
    if (r.prompt || r.messages) return field_error("prompt", "combination", "such a job has input alone");
    const auto has_ids = [](const TextOrTokens& input) { return input.has_tokens(); };
    if (r.query && std::ranges::any_of(r.input->inputs, has_ids))
      return field_error("input", "type", "documents are texts: a query and a document are told together");
    const bool draws =
        r.max_tokens || r.temperature || !r.stop.empty() || json_of(r.sampling) != json_of(SamplingRequest{});
    if (draws) {
      return field_error(
          "workload", "combination",
          "embeddings and scores take no max_tokens, no stop, no temperature and no sampling parameters");
    }
    return {};
  }
};

template <>
struct Table<SubmitReply> {
  using S = SubmitReply;
  static Fields own() {
    return {required("job_id", &S::job_id),
            required("task_id", &S::task_id),
            required("status", &S::status),
            required("queue_position", &S::queue_position, "0 is next to be dispatched."),
            required("predicted_start_ms", &S::predicted_start_ms, "From now."),
            required("backoff_ms", &S::backoff_ms),
            required("events_url", &S::events_url)};
  }
  static Fields fields() { return joined({own(), fields_of(&S::budget, Table<BudgetRemaining>::fields())}); }
};

template <>
struct Table<Receipt> {
  using S = Receipt;
  static Fields fields() {
    return {required("model_digest", &S::model_digest),
            required("engine_build", &S::engine_build),
            required("numerics", &S::numerics),
            required("device_class", &S::device_class),
            required("sampler", &S::sampler),
            required("kv_dtype", &S::kv_dtype),
            required("seed", &S::seed),
            required("prompt_sha256", &S::prompt_sha256),
            required("output_sha256", &S::output_sha256),
            required("tokens_out", &S::tokens_out),
            optional("parameters_sha256", &S::parameters_sha256, "Of temperature, sampling and stop texts."),
            optional("speculation", &S::speculation,
                     "How the worker proposed tokens ahead; absent: it did not. It decides no byte of the answer."),
            optional("partial", &S::partial, "true: of another system's engine; a second run may differ.")};
  }
};

// What parameters_sha256() hashes; never on the wire.
struct OutputParameters {
  double temperature = 0;
  std::vector<std::string> stop;
  SamplingRequest sampling;
};
template <>
struct Table<OutputParameters> {
  using S = OutputParameters;
  static Fields own() { return {required("temperature", &S::temperature), required("stop", &S::stop)}; }
  static Fields fields() { return joined({own(), fields_of(&S::sampling, Table<SamplingRequest>::fields())}); }
};

template <>
struct Table<ErrorBody> {
  using S = ErrorBody;
  static Fields fields() {
    return {required("code", &S::code, "Stable; see the error table."),
            required("message", &S::message),
            optional("retriable", &S::retriable),
            optional("retry_after_ms", &S::retry_after_ms),
            optional("policy_label", &S::policy_label),
            optional("correlation_id", &S::correlation_id),
            optional("details", &S::details)};
  }
};

template <>
struct Table<WaitReason> {
  using S = WaitReason;
  static Fields fields() {
    return {required("code", &S::code), required("human", &S::human),
            optional("load_percent", &S::load_percent, "Of the model, while a worker loads it.", {0, 100})};
  }
};

template <>
struct Table<JobView> {
  using S = JobView;
  static Fields fields() {
    return {required("job_id", &S::job_id),
            required("task_id", &S::task_id),
            optional("session_id", &S::session_id),
            optional("tenant_id", &S::tenant_id,
                     "The tenant whose job it is; told to operators alone. Omitted: its caller is no tenant."),
            required("status", &S::status),
            required("model", &S::model),
            required("model_ref", &S::model_ref),
            required("priority", &S::priority),
            optional("queue_position", &S::queue_position),
            optional("predicted_start_ms", &S::predicted_start_ms),
            optional("reason", &S::reason, "What the job waits for."),
            required("submitted_at", &S::submitted_at),
            optional("dispatched_at", &S::dispatched_at, "Sent to its last worker."),
            optional("started_at", &S::started_at),
            optional("finished_at", &S::finished_at),
            optional("first_token_ms", &S::first_token_ms,
                     "From the worker's acceptance to the first token; completed jobs."),
            optional("decode_time_ms", &S::decode_time_ms),
            required("attempts", &S::attempts),
            optional("worker_id", &S::worker_id),
            optional("pool_id", &S::pool_id),
            optional("placement", &S::placement, "As asked for; omitted: any."),
            required("tokens_in", &S::tokens_in),
            required("tokens_out", &S::tokens_out),
            optional("stop_reason", &S::stop_reason),
            optional("error", &S::error),
            required("on_disconnect", &S::on_disconnect),
            required("events_url", &S::events_url),
            optional("last_event_id", &S::last_event_id),
            optional("receipt", &S::receipt)};
  }
};
template <>
struct Table<JobList> {
  static Fields fields() {
    return {required("tasks", &JobList::tasks),
            optional("next_before", &JobList::next_before,
                     "The last of these jobs. Goes into ?before= for the jobs before it; omitted: there are none.")};
  }
};
template <>
struct Table<CancelReply> {
  static Fields fields() {
    return {required("job_id", &CancelReply::job_id), required("status", &CancelReply::status)};
  }
};

template <>
struct Table<QueuedEvent> {
  using S = QueuedEvent;
  static Fields fields() {
    return {required("job_id", &S::job_id), required("queue_position", &S::queue_position),
            required("predicted_start_ms", &S::predicted_start_ms)};
  }
};
template <>
struct Table<StartedEvent> {
  using S = StartedEvent;
  static Fields fields() {
    return {required("job_id", &S::job_id),
            optional("worker_id", &S::worker_id),
            optional("model", &S::model),
            optional("started_at", &S::started_at),
            required("seed", &S::seed),
            optional("queue_wait_ms", &S::queue_wait_ms),
            optional("queue_position", &S::queue_position),
            optional("predicted_start_ms", &S::predicted_start_ms)};
  }
};
template <>
struct Table<TokenEvent> {
  static Fields fields() {
    return {required("t", &TokenEvent::t), required("i", &TokenEvent::i),
            optional("logprobs", &TokenEvent::logprobs, "When the request asked for them."),
            optional("prompt_logprobs", &TokenEvent::prompt_logprobs,
                     "Of a token of the prompt, when the request asked for them; no token of the output then.")};
  }
};
template <>
struct Table<MetricsEvent> {
  using S = MetricsEvent;
  static Fields own() {
    return {optional("queue_depth", &S::queue_depth),
            optional("on_time_probability", &S::on_time_probability),
            optional("tokens_out", &S::tokens_out),
            optional("decode_time_ms", &S::decode_time_ms),
            optional("vram_bytes", &S::vram_bytes),
            optional("kv_warmth", &S::kv_warmth, "Whether the job is where its session's last job ended."),
            optional("kv_migrated", &S::kv_migrated, "Always false: KV never moves between workers."),
            optional("phase", &S::phase, "With verbose=true, while it waits: the code of what for."),
            optional("human", &S::human, "The same in a sentence."),
            optional("load_percent", &S::load_percent, "Of its model, while a worker loads it.")};
  }
  static Fields fields() { return joined({own(), fields_of(&S::budget, Table<BudgetRemaining>::fields())}); }
};
template <>
struct Table<SpeculationCounts> {
  using S = SpeculationCounts;
  static Fields fields() {
    return {required("proposed", &S::proposed, "Tokens computed ahead of their draw."),
            required("accepted", &S::accepted, "Of these, that were drawn.")};
  }
};
template <>
struct Table<EndEvent> {
  using S = EndEvent;
  static Fields own() {
    return {required("job_id", &S::job_id),
            optional("tokens_in", &S::tokens_in, "", {0, 1e9}),
            required("tokens_out", &S::tokens_out, "", {0, 1e9}),
            required("decode_time_ms", &S::decode_time_ms, "", {0, 1e12}),
            optional("first_token_ms", &S::first_token_ms, "", {0, 1e12}),
            required("stop_reason", &S::stop_reason),
            optional("receipt", &S::receipt)};
  }
  static Fields fields() {
    return joined({own(),
                   fields_of(&S::budget, Table<BudgetRemaining>::fields()),
                   {optional("speculation", &S::speculation, "Depends on the moment; absent: none.")}});
  }
};

base::Result<> validate_submission(const SubmitRequest& request) { return Table<SubmitRequest>::validate(request); }

template <>
struct Table<TaskResult> {
  using S = TaskResult;
  static Fields own() {
    return {required("task_id", &S::task_id),
            required("text", &S::text, "The whole output."),
            optional("logprobs", &S::logprobs, "Of each token, when the request asked for them."),
            optional("prompt_logprobs", &S::prompt_logprobs,
                     "Of each token of the prompt, when the request asked for them."),
            optional("embeddings", &S::embeddings, "Of each input, as base64 of its f32 elements, little-endian."),
            optional("scores", &S::scores, "Of each input, from 0 to 1.")};
  }
  static Fields fields() { return joined({own(), Table<EndEvent>::fields()}); }
};

std::string parameters_sha256(double temperature, const SamplingRequest& sampling,
                              const std::vector<std::string>& stop) {
  OutputParameters parameters{.temperature = temperature, .stop = stop, .sampling = sampling};
  // They report what the model says and change nothing of it.
  parameters.sampling.logprobs = false;
  parameters.sampling.top_logprobs = 0;
  parameters.sampling.prompt_logprobs.reset();
  return base::to_hex(base::sha256(encode(parameters)));
}

ErrorBody error_body(const base::Error& error, const base::CorrelationId& correlation_id) {
  const base::ErrorInfo& row = base::info(error.code);
  ErrorBody body{.code = std::string(row.name),
                 .message = error.message,
                 .retriable = row.retriable,
                 .retry_after_ms = {},
                 .policy_label = {},
                 .correlation_id = {},
                 .details = {}};
  if (!correlation_id.empty()) body.correlation_id = correlation_id.value;
  for (const auto& [key, value] : error.details) {
    if (key == "retry_after_ms" && std::holds_alternative<std::int64_t>(value)) {
      body.retry_after_ms = std::get<std::int64_t>(value);
    } else if (key == "policy_label" && std::holds_alternative<std::string>(value)) {
      body.policy_label = std::get<std::string>(value);
    } else {
      body.details.emplace_back(key, value);
    }
  }
  return body;
}

base::Error to_error(const ErrorBody& body) {
  base::Error error{base::error_code_from_name(body.code).value_or(base::ErrorCode::kInternal), body.message,
                    body.details};
  if (body.retry_after_ms) error = std::move(error).with("retry_after_ms", *body.retry_after_ms);
  if (body.policy_label) error = std::move(error).with("policy_label", *body.policy_label);
  return error;
}

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(SubmitRequest)
LLORCH_INSTANTIATE_WIRE(Placement)
LLORCH_INSTANTIATE_WIRE(StoredParams)
LLORCH_INSTANTIATE_WIRE(SubmitReply)
LLORCH_INSTANTIATE_WIRE(Receipt)
LLORCH_INSTANTIATE_WIRE(ErrorBody)
LLORCH_INSTANTIATE_WIRE(JobView)
LLORCH_INSTANTIATE_WIRE(JobList)
LLORCH_INSTANTIATE_WIRE(CancelReply)
LLORCH_INSTANTIATE_WIRE(QueuedEvent)
LLORCH_INSTANTIATE_WIRE(StartedEvent)
LLORCH_INSTANTIATE_WIRE(TokenEvent)
LLORCH_INSTANTIATE_WIRE(MetricsEvent)
LLORCH_INSTANTIATE_WIRE(EndEvent)
LLORCH_INSTANTIATE_WIRE(TaskResult)
LLORCH_INSTANTIATE_ENUM(Priority)
LLORCH_INSTANTIATE_ENUM(OnDisconnect)
LLORCH_INSTANTIATE_ENUM(Determinism)
LLORCH_INSTANTIATE_ENUM(JobStatus)
LLORCH_INSTANTIATE_ENUM(StopReason)
LLORCH_INSTANTIATE_ENUM(Workload)
LLORCH_INSTANTIATE_ENUM(PlacementMode)
