#include "orchestratord/http/openai/gateway.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/assert.h"
#include "orchestratord/http/chat/only_model.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/openai/choices.h"
#include "orchestratord/http/openai/models.h"
#include "orchestratord/http/tasks/told_logprobs.h"

namespace llorch::orchestratord::http::openai {
namespace {

const std::string kResponses = "/v1/responses";

// Nobody is asked now: a model that nobody has used yet says no context.
ListedModel listed(const Context& context, std::string name) {
  ListedModel out{.name = std::move(name)};
  const auto reference = context.names->reference_of(out.name);
  const auto facts = reference ? context.catalog->known_facts(*reference) : std::nullopt;
  if (facts && facts->context_length > 0) {
    out.context_tokens = core::jobs::context_tokens(*facts, context.config->orchestratord.worker_context_tokens);
  }
  return out;
}

std::vector<ListedModel> listed(const Context& context) {
  std::vector<ListedModel> out;
  for (std::string& name : model_names(context)) out.push_back(listed(context, std::move(name)));
  return out;
}

}  // namespace

struct Gateway::Admissions {
  Call call;  // its submission has a seed once the first job is submitted
  net::http::Principal caller;
  base::CorrelationId correlation_id;
  net::ExchangePtr exchange;
  std::vector<tasks::Admission> admitted{};
  tasks::PreparationPtr prepared{};  // of the prompt whose choices are being submitted
  std::int64_t prompt_tokens = 0;    // of all that are admitted
};

void Gateway::create(const net::Request& request, const net::ExchangePtr& exchange) {
  read(request.path, request, exchange,
       [this, exchange](Call call, const net::Request& whole) { submit(std::move(call), whole, exchange); });
}

void Gateway::count_input_tokens(const net::Request& request, const net::ExchangePtr& exchange) {
  read(kResponses, request, exchange, [this, exchange](Call call, const net::Request& whole) {
    tasks::count_prompt(context_, std::move(call.submission), std::move(call.tool_use), whole.correlation_id,
                        [this, exchange](const base::Result<std::size_t>& tokens) {
                          if (!tokens) return refuse(context_, exchange, tokens.error());
                          exchange->respond(net::http::json_response(
                              200, fmt::format(R"({{"object":"response.input_tokens","input_tokens":{}}})", *tokens)));
                        });
  });
}

void Gateway::read(const std::string& path, const net::Request& request, const net::ExchangePtr& exchange, Then then) {
  if (path != kResponses) return read_whole(path, request, exchange, then);
  auto referring = ReferringRequest::read(request.body);
  if (!referring) return refuse(context_, exchange, std::move(referring).error());
  if (!*referring) return read_whole(path, request, exchange, then);
  responses_.insert_items(
      **std::move(referring), request, exchange, [this, path, exchange, then = std::move(then)](net::Request whole) {
        go_on(std::move(whole), exchange,
              [this, path, exchange, then](const net::Request& named) { read_whole(path, named, exchange, then); });
      });
}

void Gateway::read_whole(const std::string& path, const net::Request& request, const net::ExchangePtr& exchange,
                         const Then& then) {
  const DecodeCall decode = decoder_of(path);
  ASSERT(decode != nullptr, "the route is of a call");
  auto call = decode(request.body);
  if (!call) return refuse(context_, exchange, std::move(call).error());
  const AnswerOptions* text = call->text_answer();
  if (text != nullptr && !text->conversation.id.empty()) {
    return read_turn(text->conversation.id, request, exchange, then);
  }
  if (text == nullptr || text->previous_response_id.empty()) return then(*std::move(call), request);
  responses_.continue_from(
      text->previous_response_id, request, exchange, [this, decode, exchange, then](net::Request continued) {
        go_on(std::move(continued), exchange, [this, decode, exchange, then](const net::Request& turn) {
          auto whole = decode(turn.body);
          if (!whole) return refuse(context_, exchange, std::move(whole).error());
          then(*std::move(whole), turn);
        });
      });
}

// On the request executor. What the request grew into counts until it is answered: a client sends few bytes for many.
void Gateway::go_on(net::Request whole, const net::ExchangePtr& exchange,
                    std::function<void(const net::Request&)> then) {
  if (auto held = exchange->hold(whole.body.size()); !held) return refuse(context_, exchange, std::move(held).error());
  context_.request_executor->post([then = std::move(then), whole = std::move(whole)] { then(whole); });
}

void Gateway::read_turn(const std::string& conversation_id, const net::Request& request,
                        const net::ExchangePtr& exchange, const Then& then) {
  context_.files->post([this, conversation_id, request, exchange, then] {
    auto continued = conversations_.continued(request, conversation_id);
    if (!continued) return refuse(context_, exchange, std::move(continued).error());
    net::Request whole = request;
    whole.body = std::move(continued->body);
    go_on(std::move(whole), exchange, [this, exchange, then, version = continued->version](const net::Request& turn) {
      auto call = decoder_of(kResponses)(turn.body);
      if (!call) {  // the request alone was one
        const auto unusable = chat::refused(
            "conversation", "unsupported",
            fmt::format("with the items of the conversation, {}; delete what cannot be read, or begin a new one",
                        call.error().message));
        return refuse(context_, exchange, unusable.value());
      }
      std::get<AnswerOptions>(call->answer).conversation.version = version;
      then(*std::move(call), turn);
    });
  });
}

base::Result<> Gateway::name_model(Call& call) const {
  if (!call.submission.model) {  // of a chat or a completion
    call.submission.model = TRY(chat::only_model(chat::with_known_facts(context_.names->list(), *context_.catalog),
                                                 call.submission.workload.value_or(wire::Workload::kCompletion)));
    std::get<AnswerOptions>(call.answer).model = *call.submission.model;
  }
  call.submission.model = context_.names->known(*call.submission.model);
  return {};
}

void Gateway::submit(Call call, const net::Request& request, const net::ExchangePtr& exchange) {
  if (auto named = name_model(call); !named) return refuse(context_, exchange, std::move(named).error());
  const AnswerOptions* text = call.text_answer();
  if (text != nullptr && outlives_client(*text)) return responses_.create(std::move(call), request, exchange);
  if (text != nullptr && text->choices > 1) {
    return submit_next(std::make_shared<Admissions>(
        Admissions{std::move(call), request.peer.principal, request.correlation_id, exchange}));
  }
  const auto shared = std::make_shared<const Call>(std::move(call));
  submitter_.submit(
      {.request = shared->submission,
       .caller = request.peer.principal,
       .correlation_id = request.correlation_id,
       .tool_use = shared->tool_use,
       .long_outputs = tasks::LongOutputs::kCut},
      [this, shared, correlation_id = request.correlation_id, exchange](base::Result<tasks::Admission> admission) {
        if (!admission) return refuse(context_, exchange, std::move(admission).error());
        answer(*admission, *shared, correlation_id, exchange);
      });
}

void Gateway::submit_next(const std::shared_ptr<Admissions>& admissions) {
  Call& call = admissions->call;
  const auto index = static_cast<std::int64_t>(admissions->admitted.size());
  if (!call.submission.seed) call.submission.seed = context_.entropy->next_u64() >> 1;
  const AnswerOptions& answer = *call.text_answer();
  const std::int64_t per_prompt = answer.choices_per_prompt, choice = index % per_prompt;
  wire::SubmitRequest submission;
  if (choice == 0) {
    submission = call.submission;
    if (!call.prompts.empty()) submission.prompt = call.prompts[static_cast<std::size_t>(index / per_prompt)];
    admissions->prepared.reset();
  }
  submission.seed = choice_seed(*call.submission.seed, choice);
  submitter_.submit({.request = std::move(submission),
                     .caller = admissions->caller,
                     .correlation_id = admissions->correlation_id,
                     .tool_use = call.tool_use,
                     .long_outputs = tasks::LongOutputs::kCut,
                     .counted = index == 0,
                     .jobs_to_come = answer.choices - index - 1,
                     .jobs_of_answer = answer.stream || !answer.logprobs ? 1 : answer.choices,
                     .keeps_preparation = choice + 1 < per_prompt,
                     .prepared = std::move(admissions->prepared)},
                    [this, admissions](base::Result<tasks::Admission> admission) {
                      base::Result<> goes_on;
                      if (admission) {
                        goes_on = add(*std::move(admission), *admissions);
                      } else {
                        goes_on = base::fail(std::move(admission).error());
                      }
                      if (!goes_on) return withdraw(*admissions, std::move(goes_on).error());
                      if (std::cmp_equal(admissions->admitted.size(), admissions->call.text_answer()->choices)) {
                        return answer_choices(*admissions);
                      }
                      context_.request_executor->post([this, admissions] { submit_next(admissions); });
                    });
}

base::Result<> Gateway::add(tasks::Admission admission, Admissions& to) {
  to.prepared = std::move(admission.prepared);
  to.prompt_tokens += admission.tokens_in;
  to.admitted.push_back(std::move(admission));
  if (to.call.text_answer()->stream) return {};
  return tasks::check_told_prompts(to.call.submission.sampling, to.prompt_tokens);
}

void Gateway::withdraw(const Admissions& admissions, base::Error error) const {
  for (const tasks::Admission& other : admissions.admitted) {
    context_.core->ask<core::AnswerCancel>(
        core::CancelRequested{.request = {}, .job_id = base::JobId(other.reply.job_id)},
        [](const core::AnswerCancel&) {});
  }
  refuse(context_, admissions.exchange, std::move(error));
}

void Gateway::answer_choices(const Admissions& admissions) const {
  AnswerOptions options = *admissions.call.text_answer();
  options.reading = admissions.admitted.front().reading;
  const bool echoes = !options.echo.empty() || options.echo_logprobs;
  const auto echo_of = [&](std::int64_t index) {
    if (!echoes || admissions.call.prompts.empty()) return options.echo;
    return admissions.call.prompts[static_cast<std::size_t>(index / options.choices_per_prompt)].text;
  };
  const auto choices =
      std::make_shared<Choices>(options,
                                AnswerIdentity{.job_id = base::JobId(admissions.admitted.front().reply.job_id),
                                               .correlation_id = admissions.correlation_id,
                                               .created_unix_s = context_.clock->now().unix_ms / 1000},
                                admissions.exchange);
  choices->start();
  for (std::int64_t index = 0; const tasks::Admission& admission : admissions.admitted) {
    ASSERT(admission.stream != nullptr, "a job without a task_id of its client's is new");
    admission.stream->attach(
        {.exchange = choices->exchange(index),
         .renderer = choices->renderer(index, base::JobId(admission.reply.job_id), echo_of(index), admission.tokens_in),
         .correlation_id = admissions.correlation_id},
        context_.clock->now().mono_ms);
    ++index;
  }
}

void Gateway::answer(const tasks::Admission& admission, const Call& call, const base::CorrelationId& correlation_id,
                     const net::ExchangePtr& exchange) const {
  ASSERT(admission.stream != nullptr, "a job without a task_id of its client's is new");
  const base::Time now = context_.clock->now();
  const AnswerIdentity identity{.job_id = base::JobId(admission.reply.job_id),
                                .correlation_id = correlation_id,
                                .created_unix_s = now.unix_ms / 1000};
  admission.stream->attach({.exchange = exchange,
                            .renderer = make_renderer(call, identity, admission.reading, admission.tokens_in),
                            .correlation_id = correlation_id},
                           now.mono_ms);
}

void Gateway::models(const net::Request&, const net::ExchangePtr& exchange) {
  exchange->respond(net::http::json_response(200, model_list(listed(context_), started_unix_s(context_))));
}

void Gateway::model(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto name = model_name(context_, request.path_param("id"));
  if (!name) return refuse(context_, exchange, name.error());
  exchange->respond(net::http::json_response(200, model_object(listed(context_, *name), started_unix_s(context_))));
}

}  // namespace llorch::orchestratord::http::openai
