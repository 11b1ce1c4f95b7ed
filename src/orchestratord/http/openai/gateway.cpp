#include "orchestratord/http/openai/gateway.h"

#include <memory>
#include <utility>

#include "base/assert.h"
#include "orchestratord/http/openai/choices.h"
#include "orchestratord/http/openai/embeddings.h"
#include "orchestratord/http/openai/models.h"
#include "orchestratord/http/openai/renderers.h"
#include "orchestratord/http/openai/response_renderer.h"

namespace llorch::orchestratord::http::openai {

void Gateway::chat_completions(const net::Request& request, const net::ExchangePtr& exchange) {
  submit(decode_chat(request.body), request, exchange);
}

void Gateway::completions(const net::Request& request, const net::ExchangePtr& exchange) {
  submit(decode_completion(request.body), request, exchange);
}

void Gateway::responses(const net::Request& request, const net::ExchangePtr& exchange) {
  submit(decode_response(request.body), request, exchange);
}

void Gateway::embeddings(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_embeddings(request.body);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  submitter_.submit({.request = std::move(decoded->submission),
                     .caller = request.peer.principal,
                     .correlation_id = request.correlation_id},
                    [this, options = std::move(decoded->answer), correlation_id = request.correlation_id,
                     exchange](base::Result<tasks::Admission> admission) {
                      if (!admission) return refuse(context_, exchange, std::move(admission).error());
                      const AnswerIdentity identity{.job_id = base::JobId(admission->reply.job_id),
                                                    .correlation_id = correlation_id};
                      attach(*admission, {.exchange = exchange,
                                          .renderer = std::make_shared<EmbeddingsRenderer>(options, identity),
                                          .correlation_id = correlation_id});
                    });
}

struct Gateway::Admissions {
  Request request;  // its submission has a seed once the first job is submitted
  net::http::Principal caller;
  base::CorrelationId correlation_id;
  net::ExchangePtr exchange;
  std::vector<tasks::Admission> admitted{};
};

void Gateway::submit(base::Result<Request> decoded, const net::Request& request, const net::ExchangePtr& exchange) {
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  if (decoded->answer.choices > 1) {
    return submit_next(std::make_shared<Admissions>(
        Admissions{*std::move(decoded), request.peer.principal, request.correlation_id, exchange}));
  }
  submitter_.submit({.request = std::move(decoded->submission),
                     .caller = request.peer.principal,
                     .correlation_id = request.correlation_id,
                     .tool_use = std::move(decoded->tool_use)},
                    [this, options = std::move(decoded->answer), correlation_id = request.correlation_id,
                     exchange](base::Result<tasks::Admission> admission) mutable {
                      if (!admission) return refuse(context_, exchange, std::move(admission).error());
                      options.reading = admission->reading;
                      answer(*admission, options, correlation_id, exchange);
                    });
}

void Gateway::submit_next(const std::shared_ptr<Admissions>& admissions) {
  Request& request = admissions->request;
  const auto index = static_cast<std::int64_t>(admissions->admitted.size());
  if (!request.submission.seed) request.submission.seed = context_.entropy->next_u64() >> 1;
  wire::SubmitRequest submission = request.submission;
  submission.seed = choice_seed(*request.submission.seed, index);
  submitter_.submit({.request = std::move(submission),
                     .caller = admissions->caller,
                     .correlation_id = admissions->correlation_id,
                     .tool_use = request.tool_use},
                    [this, admissions](base::Result<tasks::Admission> admission) {
                      if (admission) {
                        admissions->admitted.push_back(*std::move(admission));
                        if (std::cmp_equal(admissions->admitted.size(), admissions->request.answer.choices)) {
                          return answer_choices(*admissions);
                        }
                        return context_.desk->post([this, admissions] { submit_next(admissions); });
                      }
                      for (const tasks::Admission& other : admissions->admitted) {
                        context_.core->ask<core::AnswerCancel>(
                            core::CancelRequested{.request = {}, .job_id = base::JobId(other.reply.job_id)},
                            [](const core::AnswerCancel&) {});
                      }
                      refuse(context_, admissions->exchange, std::move(admission).error());
                    });
}

void Gateway::answer_choices(const Admissions& admissions) const {
  AnswerOptions options = admissions.request.answer;
  options.reading = admissions.admitted.front().reading;
  const auto choices =
      std::make_shared<Choices>(std::move(options),
                                AnswerIdentity{.job_id = base::JobId(admissions.admitted.front().reply.job_id),
                                               .correlation_id = admissions.correlation_id,
                                               .created_unix_s = context_.clock->now().unix_ms / 1000},
                                admissions.exchange);
  choices->start();
  for (std::int64_t index = 0; const tasks::Admission& admission : admissions.admitted) {
    attach(admission, {.exchange = choices->exchange(index),
                       .renderer = choices->renderer(index, base::JobId(admission.reply.job_id)),
                       .correlation_id = admissions.correlation_id});
    ++index;
  }
}

void Gateway::answer(const tasks::Admission& admission, const AnswerOptions& options,
                     const base::CorrelationId& correlation_id, const net::ExchangePtr& exchange) const {
  const AnswerIdentity identity{.job_id = base::JobId(admission.reply.job_id),
                                .correlation_id = correlation_id,
                                .created_unix_s = context_.clock->now().unix_ms / 1000};
  std::shared_ptr<streams::Renderer> renderer;
  if (options.endpoint == Endpoint::kResponses) {
    renderer = std::make_shared<ResponseRenderer>(options, identity);
  } else if (options.stream) {
    renderer = std::make_shared<ChunkRenderer>(options, identity);
  } else {
    renderer = std::make_shared<BodyRenderer>(options, identity);
  }
  attach(admission, {.exchange = exchange, .renderer = std::move(renderer), .correlation_id = correlation_id});
}

void Gateway::attach(const tasks::Admission& admission, const streams::Stream::Reader& reader) const {
  ASSERT(admission.stream != nullptr, "a job without a task_id of its client's is new");
  admission.stream->attach(reader, context_.clock->now().mono_ms);
}

void Gateway::models(const net::Request&, const net::ExchangePtr& exchange) {
  std::vector<std::string> names;
  for (const wire::CatalogModel& model : context_.names->list()) {
    if (!model.model_ref.empty()) names.push_back(model.model_id);
  }
  exchange->respond(net::http::json_response(200, model_list(names, started_unix_s())));
}

void Gateway::model(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string& name = request.path_param("id");
  if (!context_.names->has(name)) {
    return refuse(
        context_, exchange,
        base::Error{
            base::ErrorCode::kModelNotFound, "no model has this name; GET /v1/models lists those that are", {}});
  }
  exchange->respond(net::http::json_response(200, model_object(name, started_unix_s())));
}

std::int64_t Gateway::started_unix_s() const {
  const base::Time now = context_.clock->now();
  return (now.unix_ms - (now.mono_ms - context_.started_mono_ms)) / 1000;
}

}  // namespace llorch::orchestratord::http::openai
