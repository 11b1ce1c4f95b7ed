#include "orchestratord/http/llamacpp/gateway.h"

#include <utility>

#include "orchestratord/http/llamacpp/answers.h"
#include "orchestratord/http/llamacpp/request.h"

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

}  // namespace llorch::orchestratord::http::llamacpp
