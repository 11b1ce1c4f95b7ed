#include "orchestratord/http/anthropic/gateway.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "orchestratord/http/anthropic/errors.h"
#include "orchestratord/http/anthropic/models.h"
#include "orchestratord/http/anthropic/renderer.h"

namespace llorch::orchestratord::http::anthropic {

void Gateway::messages(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_messages(request.body, context_.config->orchestratord.limits.max_tokens);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  submitter_.submit({.request = std::move(decoded->submission),
                     .caller = request.peer.principal,
                     .correlation_id = request.correlation_id,
                     .tool_use = std::move(decoded->tool_use),
                     .long_outputs = tasks::LongOutputs::kCut},
                    [this, options = std::move(decoded->answer), correlation_id = request.correlation_id,
                     exchange](base::Result<tasks::Admission> admission) mutable {
                      if (!admission) return refuse(context_, exchange, std::move(admission).error());
                      ASSERT(admission->stream != nullptr, "a job without a task_id of its client's is new");
                      options.reading = admission->reading;
                      options.tokens_in = admission->tokens_in;
                      const base::Time now = context_.clock->now();
                      const chat::AnswerIdentity identity{.job_id = base::JobId(admission->reply.job_id),
                                                          .correlation_id = correlation_id,
                                                          .created_unix_s = now.unix_ms / 1000};
                      admission->stream->attach({.exchange = exchange,
                                                 .renderer = std::make_shared<MessageRenderer>(options, identity),
                                                 .correlation_id = correlation_id},
                                                now.mono_ms);
                    });
}

void Gateway::count_tokens(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_count_tokens(request.body);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  tasks::count_prompt(
      context_, std::move(decoded->submission), std::move(decoded->tool_use), request.correlation_id,
      [this, exchange](const base::Result<std::size_t>& tokens) {
        if (!tokens) return refuse(context_, exchange, tokens.error());
        exchange->respond(net::http::json_response(200, fmt::format(R"({{"input_tokens":{}}})", *tokens)));
      });
}

void Gateway::refuse_here(const net::Request& request, const net::ExchangePtr& exchange,
                          const base::Error& error) const {
  context_.metrics->error(error.name());
  exchange->respond(error_response(error, request.correlation_id));
}

void Gateway::models(const net::Request& request, const net::ExchangePtr& exchange) {
  std::vector<std::string> names = model_names(context_);
  std::ranges::reverse(names);  // the page begins with the last one
  const auto page = deferred::list_page(
      request, kPages, names, [&](std::size_t index) { return model_object(names[index], started_unix_s(context_)); });
  if (!page) return refuse_here(request, exchange, page.error());
  exchange->respond(net::http::json_response(200, *page));
}

void Gateway::model(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto name = model_name(context_, request.path_param("id"));
  if (!name) return refuse_here(request, exchange, name.error());
  exchange->respond(net::http::json_response(200, model_object(*name, started_unix_s(context_))));
}

}  // namespace llorch::orchestratord::http::anthropic
