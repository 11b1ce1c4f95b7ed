#include "orchestratord/http/tasks/submit.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "base/utf8.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/tasks/constraint.h"
#include "orchestratord/http/tasks/engine_text.h"
#include "orchestratord/http/tasks/job_view.h"
#include "orchestratord/http/tasks/told_logprobs.h"
#include "orchestratord/http/tenancy.h"
#include "orchestratord/store/rows/job_row.h"
#include "text/text_stream.h"
#include "wire/execute_message.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

using base::Error;
using base::ErrorCode;

// 63 bits, so that every JSON reader keeps it.
constexpr std::uint64_t kSeedMask = 0x7fff'ffff'ffff'ffffu;

// What operators may see of the parameters, and wire::StoredParams; nothing text-like.
std::string params_json(const wire::ExecuteRequest& r, const std::optional<wire::Placement>& placement, bool charged) {
  const std::string changed = wire::changed_sampling_fields(r.sampling);
  return fmt::format(R"({}"temperature":{},"stop_count":{}{}{}{}}})", charged ? LLORCH_CHARGED_PARAMS : "{",
                     r.temperature, r.stop.size(), changed.empty() ? "" : ",", changed,
                     placement ? R"(,"placement":)" + wire::encode(*placement) : "");
}

// Of what the client sent; where tokens stand between its texts or are spelled in them, of all of the tokens.
std::string prompt_sha256(const wire::SubmitRequest& request, const Prepared& prepared,
                          const std::vector<std::int32_t>& tokens) {
  if (!request.prompt) return prompt_digest(prepared.prompt, prepared.images);
  if (prepared.prompt.text.empty()) return base::to_hex(wire::digest_of({.text = {}, .tokens = tokens}));
  return base::to_hex(wire::digest_of(*request.prompt));
}

base::Result<> check_prompt_logprobs(const wire::SubmitRequest& request, bool has_images, std::size_t prompt_tokens) {
  if (request.sampling.prompt_logprobs.value_or(false) && has_images) {
    return chat::refused(
        "prompt_logprobs", "combination",
        "tokens that stand for an image have no log-probabilities; leave the images or prompt_logprobs out");
  }
  auto told = wire::validate_prompt_logprobs(request.sampling, prompt_tokens);
  if (told || request.prompt) return told;
  for (auto& [key, value] : told.error().details) {
    if (key == "field") value = std::string("messages");
  }
  return told;
}

// `most` tokens behind a prompt of a caller that names no number, or fewer: its share, of so many, of what its day's budget has left.
std::int64_t within_the_day(const Context& context, const std::string& account, std::int64_t shares,
                            std::int64_t prompt_tokens, std::int64_t most) {
  auto left = context.board->tokens_left(account, context.clock->now());
  if (!left) {  // nothing of it is used
    const auto snapshot = context.live_config->get();
    const auto& config = snapshot->orchestratord;
    const auto tenant = std::ranges::find(config.tenants, account, &config::TenantConfig::id);
    const bool has_own = tenant != config.tenants.end() && tenant->quotas;
    const config::QuotaConfig quotas = has_own ? tenant->quotas->over(config.quotas) : config.quotas;
    if (quotas.token_budget_daily > 0) left = quotas.token_budget_daily;
  }
  return left ? std::min(most, std::max<std::int64_t>(*left / shares - prompt_tokens, 1)) : most;
}

// From here on only the payload is held.
void drop_texts(wire::SubmitRequest& request) {
  request.prompt.reset();
  request.suffix.reset();
  request.extra_files.reset();
  request.input.reset();
  request.query.reset();
  request.messages.reset();
  request.tools.reset();
  request.documents.reset();
  request.chat_template_kwargs.reset();
}

Error stopping_error() {
  return Error{ErrorCode::kShuttingDown, "orchestratord is stopping; try again when it is back", {}}.with(
      "retry_after_ms", std::int64_t{1000});
}

}  // namespace

base::Result<wire::SubmitRequest> decode_request(const std::string& body) {
  if (!base::is_valid_utf8(body)) return chat::refused("", "utf8", "the body is not valid UTF-8");
  return wire::decode<wire::SubmitRequest>(body, wire::UnknownKeys::kRefuse);
}

base::Result<> take_idempotency_key(const net::http::Headers& headers, wire::SubmitRequest& request) {
  const auto header = headers.get("Idempotency-Key");
  if (!header) return {};
  std::string_view key = *header;
  if (key.size() >= 2 && key.starts_with('"') && key.ends_with('"')) key = key.substr(1, key.size() - 2);
  if (!base::is_valid_identifier(key)) {
    return chat::refused(
        "Idempotency-Key", "charset",
        "Idempotency-Key is 1 to 256 characters of A-Z, a-z, 0-9, _ and -, with or without quotation marks");
  }
  if (request.task_id && *request.task_id != key) {
    return chat::refused("Idempotency-Key", "combination",
                         "Idempotency-Key and task_id name the job; give one of them");
  }
  request.task_id = key;
  return {};
}

std::string request_sha256(wire::SubmitRequest request, const std::vector<std::string>& images) {
  request.parse_special.reset();
  base::Sha256 hash;
  hash.update(wire::encode(request));
  for (const std::string& image : images) hash.update(base::to_hex(base::sha256(image)));
  return base::to_hex(hash.digest());
}

wire::ExecuteRequest execute_request(const wire::SubmitRequest& request, ExecutionInput input) {
  wire::ExecuteRequest out;
  out.job_id = input.job_id.value;
  if (!input.prompt_tokens) {
    if (request.prompt) out.prompt = request.prompt->text;
    out.messages = request.messages;
  }
  out.prompt_tokens = std::move(input.prompt_tokens);
  out.prompt_sha256 = std::move(input.prompt_sha256);
  out.images = std::move(input.images);
  out.embedding = std::move(input.embedding);
  out.max_tokens = input.max_tokens;
  out.temperature = wire::effective_temperature(request);
  out.sampling = request.sampling;
  out.stop = request.stop;
  out.seed = input.seed;
  return out;
}

// Before the model is known. A token has a byte or more; templates and image tokens are allowed for generously.
core::sessions::QuotaTable::Standing::Tokens Submitter::tokens_of(const Pending& pending) const {
  constexpr std::int64_t kTemplateTokens = 4096, kImageTokens = 4096, kSpecialTokens = 16, kFileTokens = 32;
  const wire::SubmitRequest& request = pending.request;
  const std::size_t bytes =
      pending.prepared ? static_cast<std::size_t>(pending.prepared->input.tokens_in) : bytes_of(request);
  if (request.input) {
    const auto inputs = static_cast<std::int64_t>(request.input->inputs.size());
    return {.at_least = 2 * inputs, .at_most = static_cast<std::int64_t>(bytes) + inputs * kSpecialTokens};
  }
  const auto images = static_cast<std::int64_t>(pending.images.size());
  const auto files = static_cast<std::int64_t>(request.extra_files ? request.extra_files->size() + 1 : 0);
  const std::int64_t added =
      request.prompt ? kSpecialTokens + files * kFileTokens : kTemplateTokens + images * kImageTokens;
  const std::int64_t limit = context_.config->orchestratord.limits.max_tokens;
  const std::int64_t wanted = std::min(request.max_tokens.value_or(limit), limit);
  const bool is_sure = request.max_tokens && pending.long_outputs == LongOutputs::kRefuse;
  return {.at_least = 1 + (is_sure ? wanted : 1), .at_most = wanted + static_cast<std::int64_t>(bytes) + added};
}

// Only the line in the log is not written, for there may be very many.
void Submitter::count_refusal(const Error& error, wire::Priority priority) const {
  context_.metrics->count({core::Metric::kEnqueued, "rejected", priority, 1, {}});
  context_.metrics->count({core::Metric::kRejected, std::string(error.name()), priority, 1, {}});
}

std::optional<Error> Submitter::early_refusal(const AdmissionBoard::Newcomer& newcomer) const {
  auto error = context_.board->refusal(newcomer, context_.clock->now());
  if (error) count_refusal(*error, newcomer.priority);
  return error;
}

base::Result<> Submitter::check(const net::http::Principal& caller) const {
  return answer_head(*context_.stopping ? stopping_error()
                                        : early_refusal({.account = caller.account, .is_tenant = is_tenant(caller)}));
}

base::Result<> Submitter::check_arrival(const net::http::Principal& caller) const {
  if (*context_.stopping) return answer_head(stopping_error());
  auto error = context_.board->arrival_refusal(caller.account, context_.clock->now());
  if (error) count_refusal(*error);
  return answer_head(std::move(error));
}

base::Result<> Submitter::answer_head(std::optional<Error> error) const {
  if (!error) return {};
  context_.metrics->error(error->name());
  return base::fail(std::move(*error));
}

base::Result<Submitter::PendingPtr> Submitter::take(Submission submission) const {
  if (*context_.stopping) return base::fail(stopping_error());
  auto pending = std::make_shared<Pending>();
  TRY(take_request(submission, *pending));
  pending->correlation_id = std::move(submission.correlation_id);
  pending->caller = std::move(submission.caller);
  pending->is_resumed = submission.is_resumed;
  pending->tool_use = std::move(submission.tool_use);
  pending->long_inputs = submission.long_inputs;
  pending->long_outputs = submission.long_outputs;
  pending->context_tokens = submission.context_tokens;
  pending->counted = submission.counted;
  pending->charged_max_tokens = submission.charged_max_tokens;
  pending->jobs_to_come = submission.jobs_to_come;
  pending->jobs_of_answer = submission.jobs_of_answer;
  pending->keeps_preparation = submission.keeps_preparation;
  pending->api_defaults = std::move(submission.api_defaults);
  pending->client_named = pending->request.task_id.has_value();
  const std::string task_id = pending->client_named ? *pending->request.task_id : base::uuid_v4(*context_.entropy);
  pending->task_id = kept_id(pending->caller, task_id);
  // The operator's task_id is the job's id as well if it is a UUID.
  pending->job_id =
      base::is_uuid(task_id) ? job_id_of_task(pending->caller, task_id) : base::JobId(base::uuid_v4(*context_.entropy));
  return pending;
}

base::Result<> Submitter::take_request(Submission& submission, Pending& pending) const {
  if (submission.prepared) {
    pending.prepared = std::move(submission.prepared);
    const Preparation& prepared = *pending.prepared;
    pending.request = prepared.request;
    pending.request.seed = submission.request.seed;
    pending.reading = prepared.reading;
    pending.cut_inputs = prepared.cut_inputs;
    // Of no request, so that no submission that names this job's task is the same one.
    pending.request_sha256 = base::to_hex(
        base::sha256(fmt::format("{} with the seed {}", prepared.request_sha256, pending.request.seed.value_or(0))));
    return {};
  }
  Inputs inputs =
      TRY(take_inputs(std::move(submission.request), context_.config->orchestratord.limits, submission.long_outputs));
  pending.request = std::move(inputs.request);
  pending.images = std::move(inputs.images);
  pending.request_sha256 = request_sha256(pending.request, pending.images);
  return {};
}

void Submitter::preview(Submission submission, PreviewDone done) {
  auto taken = take(std::move(submission));
  if (!taken) return done(base::fail(std::move(taken).error()));
  (*taken)->previewed = std::move(done);
  (*taken)->client_named = false;  // no other submission waits for it
  find_model(*taken);
}

void Submitter::submit(Submission submission, Done done) {
  auto taken = take(std::move(submission));
  if (!taken) return done(base::fail(std::move(taken).error()));
  const PendingPtr pending = *std::move(taken);
  pending->done = std::move(done);
  if (!pending->client_named) return find_model(pending);
  {
    const std::lock_guard lock(mutex_);
    const auto [it, first] = gate_.try_emplace(pending->task_id);
    if (!first) return it->second.push_back(pending);
  }
  look_up_task(pending);
}

void Submitter::look_up_task(const PendingPtr& pending) {
  context_.store->find_task(pending->task_id, [this, pending](base::Result<std::optional<store::JobRecord>> found) {
    if (!found) return finish(pending, base::fail(std::move(found).error()));
    if (!*found) return context_.request_executor->post([this, pending] { find_model(pending); });
    const store::JobRecord& record = **found;
    const bool is_same = pending->is_resumed || record.request_sha256 == pending->request_sha256;
    if (record.task_id != pending->task_id || !is_same) {
      return finish(pending, base::fail(Error{
                                 ErrorCode::kConflict,
                                 "another request was submitted under this task_id; use a new one",
                                 {}}.with("task_id", shown_id(pending->caller, pending->task_id))));
    }
    repeat_answer(pending, record);
  });
}

// The same submission again: the same job, as it stands now.
void Submitter::repeat_answer(const PendingPtr& pending, const store::JobRecord& record) {
  wire::SubmitReply reply;
  reply.job_id = record.job_id.value;
  reply.task_id = shown_id(pending->caller, record.task_id);
  reply.status = record.progress.status;
  reply.events_url = events_url(record.job_id);
  context_.core->ask<core::AnswerQueryJob>(
      core::QueryJob{.request = {}, .job_id = record.job_id},
      [this, pending, reply = std::move(reply)](core::AnswerQueryJob answer) mutable {
        // An ending that is not committed yet is nobody's to see.
        if (answer.job && !wire::is_terminal(answer.job->status)) {
          reply.status = answer.job->status;
          reply.queue_position = answer.job->queue_position.value_or(0);
          reply.predicted_start_ms = answer.job->predicted_start_ms.value_or(0);
        }
        streams::StreamPtr stream = context_.hub->find(base::JobId(reply.job_id));
        Admission admission{std::move(reply), std::move(stream)};
        if (!pending->tool_use) return finish(pending, std::move(admission));
        context_.request_executor->post([this, pending, admission = std::move(admission)]() mutable {
          find_reading(pending, std::move(admission));
        });
      });
}

// How the answer of an earlier submission is read follows from the request and its model.
void Submitter::find_reading(const PendingPtr& pending, Admission admission) {
  const wire::SubmitRequest& request = pending->request;
  tasks::find_model(context_, request.model ? *request.model : *request.model_ref, Naming::kUse,
                    pending->correlation_id,
                    [this, pending, admission = std::move(admission)](base::Result<FoundModel> found) mutable {
                      if (!found) return finish(pending, base::fail(std::move(found).error()));
                      if (found->model.facts.takes == wire::PromptForm::kText) {
                        return finish(pending, std::move(admission));  // all of it is content
                      }
                      auto prepared = prepare({std::move(pending->request), std::move(pending->images)},
                                              pending->tool_use, found->model, context_.clock->now());
                      if (!prepared) return finish(pending, base::fail(std::move(prepared).error()));
                      admission.reading = std::move(prepared->reading);
                      finish(pending, std::move(admission));
                    });
}

void Submitter::find_model(const PendingPtr& pending) {
  const wire::SubmitRequest& request = pending->request;
  const std::string& name = request.model ? *request.model : *request.model_ref;
  if (!pending->previewed && !pending->charged_max_tokens) {
    if (auto error = early_refusal({.account = pending->caller.account,
                                    .is_tenant = is_tenant(pending->caller),
                                    .tokens = tokens_of(*pending),
                                    .priority = request.priority,
                                    .counted = pending->counted})) {
      return finish(pending, base::fail(std::move(*error)));
    }
  }
  if (pending->prepared) {
    return ask_session(pending,
                       [this, pending] { make_job(pending, pending->prepared->found, pending->prepared->input); });
  }
  tasks::find_model(context_, name, pending->previewed ? Naming::kLook : Naming::kUse, pending->correlation_id,
                    [this, pending](base::Result<FoundModel> found) {
                      if (!found) return finish(pending, base::fail(std::move(found).error()));
                      ask_session(pending, [this, pending, found = *std::move(found)] { prepare_job(pending, found); });
                    });
}

// Of a session with a budget of tokens; one that is not there yet will have the configured one.
void Submitter::ask_session(const PendingPtr& pending, std::function<void()> then) {
  if (!pending->request.session_id || pending->request.max_tokens || pending->charged_max_tokens) return then();
  const base::SessionId session_id(kept_id(pending->caller, *pending->request.session_id));
  context_.core->ask<core::AnswerSession>(
      core::QuerySession{.request = {}, .session_id = session_id},
      [this, pending, then = std::move(then)](const core::AnswerSession& answer) mutable {
        const wire::SessionView* session = answer.result ? &*answer.result : nullptr;
        pending->session_tokens =
            session == nullptr ? context_.config->orchestratord.sessions.token_budget : session->token_budget;
        if (session != nullptr && pending->session_tokens) {
          *pending->session_tokens -= session->tokens_used + session->tokens_reserved;
        }
        context_.request_executor->post(std::move(then));
      });
}

base::Result<> Submitter::check_context(const Pending& pending, const models::KnownModel& model) const {
  const std::int64_t context =
      core::jobs::context_tokens(model.facts, context_.config->orchestratord.worker_context_tokens);
  if (context <= 0 || pending.context_tokens <= context) return {};
  return base::fail(Error{
      ErrorCode::kInvalidParams,
      fmt::format("ctx is {}, and the context of the model has {} tokens", pending.context_tokens, context),
      {}}.with("field", std::string("ctx"))
                        .with("reason", std::string("CONTEXT_TOO_LARGE"))
                        .with("context_tokens", context));
}

void Submitter::prepare_job(const PendingPtr& pending, const FoundModel& found) {
  const models::KnownModel& model = found.model;
  const wire::SubmitRequest& request = pending->request;
  base::Result<> does = check_context(*pending, model);
  if (does) does = check_workload(request, model.facts);
  // What an earlier process has accepted is run as it was.
  const bool is_checked = pending->long_outputs == LongOutputs::kRefuse && !pending->is_resumed;
  if (does && is_checked) does = check_told_tokens(request.sampling, request.max_tokens);
  if (!does) return finish(pending, base::fail(std::move(does).error()));
  auto input = model.facts.takes == wire::PromptForm::kText ? hand_on_text(*pending, model)
               : request.input                              ? tokenise_inputs(*pending, model)
                                                            : tokenise(*pending, model);
  if (!input) return finish(pending, base::fail(std::move(input).error()));
  if (input->prompt_tokens) drop_texts(pending->request);
  if (pending->keeps_preparation) {
    pending->prepared = std::make_shared<const Preparation>(Preparation{.found = found,
                                                                        .request = pending->request,
                                                                        .input = *input,
                                                                        .reading = pending->reading,
                                                                        .cut_inputs = pending->cut_inputs,
                                                                        .request_sha256 = pending->request_sha256});
  }
  make_job(pending, found, *std::move(input));
}

base::Result<ExecutionInput> Submitter::tokenise(Pending& pending, const models::KnownModel& model) const {
  auto prepared = TRY(
      prepare({std::move(pending.request), std::move(pending.images)}, pending.tool_use, model, context_.clock->now()));
  wire::SubmitRequest& request = pending.request = std::move(prepared.request);
  pending.reading = std::move(prepared.reading);
  std::vector<std::int32_t> tokens;
  for (const auto token : prepared.prompt.tokens) tokens.push_back(static_cast<std::int32_t>(base::index(token)));
  TRY(wire::validate_for_vocabulary(request.sampling, model.tokenizer->facts().vocab_size));
  TRY(check_prompt_logprobs(request, !prepared.images.images.empty(), tokens.size()));
  TRY(text::validate_stop_strings(*model.tokenizer, request.stop));
  TRY(check_constraint(request.sampling, model));
  std::string sha256 = prompt_sha256(request, prepared, tokens);
  const auto tokens_in = static_cast<std::int64_t>(tokens.size());
  return ExecutionInput{.job_id = {},
                        .prompt_tokens = std::move(tokens),
                        .tokens_in = tokens_in,
                        .prompt_sha256 = std::move(sha256),
                        .images = std::move(prepared.images.images)};
}

base::Result<ExecutionInput> Submitter::tokenise_inputs(Pending& pending, const models::KnownModel& model) const {
  const std::int64_t context =
      core::jobs::context_tokens(model.facts, context_.config->orchestratord.worker_context_tokens);
  auto prompt = TRY(embedding_prompt(pending.request, model, context, pending.long_inputs, context_.clock->now()));
  pending.cut_inputs = std::move(prompt.cut_inputs);
  const auto tokens_in = static_cast<std::int64_t>(prompt.tokens.size());
  return ExecutionInput{.job_id = {},
                        .prompt_tokens = std::move(prompt.tokens),
                        .tokens_in = tokens_in,
                        .prompt_sha256 = std::move(prompt.sha256),
                        .embedding = std::move(prompt.order)};
}

// Its engine counts and tells the prompt: what goes along is the text, and its bytes bound its tokens.
base::Result<ExecutionInput> Submitter::hand_on_text(Pending& pending, const models::KnownModel& model) const {
  TRY(fit_to_engine(pending.request, pending.images, model.facts, pending.api_defaults));
  const wire::SubmitRequest& request = pending.request;
  const std::string& text = request.prompt ? request.prompt->text : request.messages->text;
  return ExecutionInput{.job_id = {},
                        .prompt_tokens = {},
                        .tokens_in = static_cast<std::int64_t>(text.size()),
                        .prompt_sha256 = base::to_hex(base::sha256(text))};
}

void Submitter::make_job(const PendingPtr& pending, const FoundModel& found, ExecutionInput input) {
  const models::KnownModel& model = found.model;
  wire::SubmitRequest& request = pending->request;
  const auto job = std::make_shared<LiveJobData>();
  store::JobRecord& record = job->record;
  record.job_id = pending->job_id;
  record.task_id = pending->task_id;
  if (request.session_id) record.session_id = kept_id(pending->caller, *request.session_id);
  record.correlation_id = pending->correlation_id;
  record.request_sha256 = pending->request_sha256;
  record.priority = request.priority;
  record.model = request.model ? *request.model : *request.model_ref;
  record.model_ref = found.ref;
  record.facts = model.facts;
  record.prompt_sha256 = input.prompt_sha256;
  record.max_tokens = input.max_tokens = max_tokens_of(*pending, model.facts, input);
  record.seed = request.seed ? *request.seed : context_.entropy->next_u64() & kSeedMask;
  record.on_disconnect = request.on_disconnect;
  record.tenant_id = pending->caller.account;
  record.timeout_ms = request.timeout_ms ? request.timeout_ms : model.timeout_ms;
  record.deadline_ms = request.deadline_ms;
  record.tokens_in = pending->tokens_in = input.tokens_in;
  record.submitted_unix_ms = context_.clock->now().unix_ms;
  input.job_id = record.job_id;
  input.seed = record.seed;
  const wire::ExecuteRequest execution = execute_request(request, std::move(input));
  record.params = params_json(execution, request.placement, pending->charged_max_tokens.has_value());
  job->payload = wire::execute_message(execution);
  job->parameters_sha256 = wire::parameters_sha256(execution);
  job->prompt_events = wire::prompt_events_count(execution);
  drop_texts(request);
  enqueue(pending, job);
}

// What limits, context and the log-probabilities of an answer leave, if the client does not say or asks for more and its API cuts that; if
// it does not say, also what its session and its day leave. A prompt that leaves nothing is refused by the core.
std::int64_t Submitter::max_tokens_of(const Pending& pending, const wire::ModelFacts& facts,
                                      const ExecutionInput& input) const {
  const auto& config = context_.config->orchestratord;
  const wire::SubmitRequest& request = pending.request;
  const std::optional<std::int64_t>& wanted = request.max_tokens;
  if (input.embedding) return static_cast<std::int64_t>(input.embedding->input_tokens.size());
  if (pending.charged_max_tokens) return *pending.charged_max_tokens;
  const std::int64_t told =
      told_tokens_max(request.sampling, pending.jobs_of_answer).value_or(config.limits.max_tokens);
  const std::int64_t limit = std::min(told, config.limits.max_tokens);
  const std::int64_t shares = 1 + pending.jobs_to_come;
  std::int64_t most = 0;
  if (input.prompt_tokens) {
    if (wanted && pending.long_outputs == LongOutputs::kRefuse) return *wanted;
    const std::int64_t context = core::jobs::context_tokens(facts, config.worker_context_tokens);
    most = std::min(wanted.value_or(limit), limit);
    if (context > 0) most = std::min(most, context - input.tokens_in);
    if (pending.session_tokens) most = std::min(most, *pending.session_tokens / shares - input.tokens_in);
  } else {
    most = engine_max_tokens(request, facts, limit, pending.long_outputs);
  }
  if (!wanted) most = within_the_day(context_, pending.caller.account, shares, input.tokens_in, most);
  return std::max<std::int64_t>(most, 1);
}

void Submitter::enqueue(const PendingPtr& pending, const std::shared_ptr<LiveJobData>& job) {
  const store::JobRecord& record = job->record;
  if (pending->previewed) {
    return context_.core->ask<core::AnswerQueryPreview>(
        core::QueryPreview{.request = {}, .job = job_spec(record)},
        [pending](core::AnswerQueryPreview answer) { pending->previewed(std::move(answer.preview)); });
  }
  // The stream is there before the 202, so that a client that is quick finds it.
  job->stream = context_.hub->open(record.job_id, record.on_disconnect, record.tenant_id);
  context_.jobs->add(job);
  core::Submit event;
  event.job = job_spec(record);
  event.counted = std::exchange(pending->counted, true);
  context_.core->ask<core::AnswerSubmit>(
      std::move(event),
      [this, pending, stream = job->stream](core::AnswerSubmit reply) { answer(pending, stream, std::move(reply)); });
}

void Submitter::answer(const PendingPtr& pending, const streams::StreamPtr& stream, core::AnswerSubmit reply) {
  if (!reply.result) {
    context_.jobs->remove(pending->job_id);
    context_.hub->forget(pending->job_id);
    stream->abort_clients();  // who named the job may read already; nothing will ever come
    return finish(pending, base::fail(shown(pending->caller, std::move(reply.result).error())));
  }
  wire::SubmitReply body;
  body.job_id = pending->job_id.value;
  body.task_id = shown_id(pending->caller, pending->task_id);
  body.queue_position = reply.result->queue_position;
  body.predicted_start_ms = reply.result->predicted_start_ms;
  body.backoff_ms = reply.result->backoff_ms;
  body.events_url = events_url(pending->job_id);
  body.budget = reply.result->budget;
  finish(pending, Admission{std::move(body), stream, pending->reading, pending->tokens_in,
                            std::move(pending->cut_inputs), std::move(pending->prepared)});
}

// The next submission of the same task_id finds the row, or is the first one now.
void Submitter::finish(const PendingPtr& pending, base::Result<Admission> result) {
  if (pending->previewed) return pending->previewed(base::fail(std::move(result).error()));
  // One of several that no client tries again.
  if (!pending->counted && !result && !base::info(result.error().code).retriable) {
    context_.core->ask<core::AnswerArrival>(core::CountArrival{.request = {}, .tenant_id = pending->caller.account},
                                            [](const core::AnswerArrival&) {});
  }
  pending->done(std::move(result));
  if (!pending->client_named) return;
  PendingPtr next;
  {
    const std::lock_guard lock(mutex_);
    const auto it = gate_.find(pending->task_id);
    if (it == gate_.end()) return;
    if (it->second.empty()) {
      gate_.erase(it);
      return;
    }
    next = std::move(it->second.front());
    it->second.erase(it->second.begin());
  }
  look_up_task(next);
}

}  // namespace llorch::orchestratord::http::tasks
