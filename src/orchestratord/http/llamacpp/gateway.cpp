#include "orchestratord/http/llamacpp/gateway.h"

#include <memory>
#include <utility>

#include "base/assert.h"
#include "orchestratord/http/llamacpp/answers.h"
#include "orchestratord/http/llamacpp/request.h"
#include "orchestratord/http/llamacpp/rerank.h"

namespace llorch::orchestratord::http::llamacpp {

void Gateway::answer(const net::Request& request, const std::optional<std::string>& model, Answer answer,
                     const net::ExchangePtr& exchange) const {
  const auto name = model_of(model, context_.names->list());
  if (!name) return refuse(context_, exchange, name.error());
  tasks::find_model(context_, context_.names->use(*name), request.correlation_id,
                    [this, answer = std::move(answer), exchange](base::Result<tasks::FoundModel> found) {
                      if (!found) return refuse(context_, exchange, std::move(found).error());
                      if (const auto counts = tasks::check_counts_here(found->model); !counts) {
                        return refuse(context_, exchange, counts.error());
                      }
                      auto body = answer(found->model);
                      if (!body) return refuse(context_, exchange, std::move(body).error());
                      exchange->respond(net::http::json_response(200, *std::move(body)));
                    });
}

void Gateway::tokenize(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_tokenize(request.body);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  const auto model = decoded->model;
  answer(
      request, model,
      [body = *std::move(decoded)](const models::KnownModel& known) { return tokenize_body(*known.tokenizer, body); },
      exchange);
}

void Gateway::detokenize(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_detokenize(request.body);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  const auto model = decoded->model;
  answer(
      request, model,
      [body = *std::move(decoded)](const models::KnownModel& known) {
        return detokenize_body(*known.tokenizer, body.tokens);
      },
      exchange);
}

void Gateway::apply_template(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_apply_template(request.body);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  const auto model = decoded->model;
  auto inputs = tasks::take_inputs(*std::move(decoded), context_.config->orchestratord.limits);
  if (!inputs) return refuse(context_, exchange, std::move(inputs).error());
  answer(
      request, model,
      [this, inputs = *std::move(inputs)](const models::KnownModel& known) -> base::Result<std::string> {
        const auto prepared = TRY(tasks::prepare(inputs, chat::ToolUse{}, known, context_.clock->now()));
        return apply_template_body(prepared.prompt.text);
      },
      exchange);
}

void Gateway::rerank(const net::Request& request, const net::ExchangePtr& exchange) {
  auto call = decode_rerank(request.body);
  if (!call) return refuse(context_, exchange, std::move(call).error());
  auto name = model_of(call->submission.model, context_.names->list());
  if (!name) return refuse(context_, exchange, std::move(name).error());
  call->submission.model = call->answer.model = *std::move(name);
  submitter_.submit({.request = std::move(call->submission),
                     .caller = request.peer.principal,
                     .correlation_id = request.correlation_id},
                    [this, options = std::move(call->answer), correlation_id = request.correlation_id,
                     exchange](base::Result<tasks::Admission> admission) mutable {
                      if (!admission) return refuse(context_, exchange, std::move(admission).error());
                      ASSERT(admission->stream != nullptr, "a job without a task_id of its client's is new");
                      const chat::AnswerIdentity identity{.job_id = base::JobId(admission->reply.job_id),
                                                          .correlation_id = correlation_id};
                      admission->stream->attach(
                          {.exchange = exchange,
                           .renderer = std::make_shared<RerankRenderer>(std::move(options), identity),
                           .correlation_id = correlation_id},
                          context_.clock->now().mono_ms);
                    });
}

}  // namespace llorch::orchestratord::http::llamacpp
