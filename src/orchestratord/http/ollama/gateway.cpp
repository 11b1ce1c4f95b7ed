#include "orchestratord/http/ollama/gateway.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/version.h"
#include "orchestratord/http/ollama/errors.h"
#include "orchestratord/http/ollama/models.h"
#include "orchestratord/http/ollama/pull.h"
#include "orchestratord/http/ollama/renderer.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::ollama {

void Gateway::chat(const net::Request& request, const net::ExchangePtr& exchange) {
  serve(decode_chat(request.body), {request.peer.principal, request.correlation_id, exchange});
}

void Gateway::generate(const net::Request& request, const net::ExchangePtr& exchange) {
  serve(decode_generate(request.body), {request.peer.principal, request.correlation_id, exchange});
}

void Gateway::serve(base::Result<Request> decoded, Caller caller) {
  if (!decoded) return refuse(context_, caller.exchange, std::move(decoded).error());
  const std::string model = context_.names->known(*decoded->submission.model);
  decoded->submission.model = model;
  if (!decoded->only_finds_model && !decoded->plain_prompt) return submit(*std::move(decoded), std::move(caller));
  tasks::find_model(context_, model, tasks::Naming::kLook, caller.correlation_id,
                    [this, request = *std::move(decoded), caller](base::Result<tasks::FoundModel> found) mutable {
                      if (!found) return refuse(context_, caller.exchange, std::move(found).error());
                      if (request.only_finds_model) return answer_empty(request, caller, found->model.facts.digest);
                      if (found->model.chat != nullptr && !found->model.chat->has_template()) {
                        request.submission.prompt = {.text = *std::move(request.plain_prompt)};
                        request.submission.messages.reset();
                        request.submission.chat_template_kwargs.reset();
                        request.tool_use.reset();
                      }
                      submit(std::move(request), std::move(caller));
                    });
}

// A tenant may not free memory that others' jobs use.
void Gateway::answer_empty(const Request& request, const Caller& caller, const std::string& digest) {
  if (request.stops_workers && caller.principal.role != net::http::Role::kOperator) {
    return refuse(context_, caller.exchange,
                  {base::ErrorCode::kForbidden,
                   "Only an operator ends a model's workers (keep_alive: 0); an idle one makes room by itself.",
                   {}});
  }
  if (request.stops_workers) models_.stop_workers(digest);
  const std::int64_t now_s = context_.clock->now().unix_ms / 1000;
  const std::string_view reason = request.stops_workers ? "unload" : "load";
  caller.exchange->respond(net::http::json_response(200, empty_answer(request.answer, now_s, reason)));
}

void Gateway::submit(Request request, Caller caller) {
  submitter_.submit(
      {.request = std::move(request.submission),
       .caller = caller.principal,
       .correlation_id = caller.correlation_id,
       .tool_use = std::move(request.tool_use),
       .long_outputs = tasks::LongOutputs::kCut,
       .api_defaults = std::move(request.api_defaults)},
      [this, options = std::move(request.answer), caller](base::Result<tasks::Admission> admission) mutable {
        if (!admission) return refuse(context_, caller.exchange, std::move(admission).error());
        ASSERT(admission->stream != nullptr, "a job without a task_id of its client's is new");
        options.reading = admission->reading;
        const base::Time now = context_.clock->now();
        const chat::AnswerIdentity identity{.job_id = base::JobId(admission->reply.job_id),
                                            .correlation_id = caller.correlation_id,
                                            .created_unix_s = now.unix_ms / 1000};
        admission->stream->attach({.exchange = caller.exchange,
                                   .renderer = std::make_shared<AnswerRenderer>(options, identity),
                                   .correlation_id = caller.correlation_id},
                                  now.mono_ms);
      });
}

void Gateway::embed(const net::Request& request, const net::ExchangePtr& exchange) {
  serve_embeddings(decode_embed(request.body), {request.peer.principal, request.correlation_id, exchange});
}

void Gateway::embeddings(const net::Request& request, const net::ExchangePtr& exchange) {
  serve_embeddings(decode_embeddings(request.body), {request.peer.principal, request.correlation_id, exchange});
}

void Gateway::serve_embeddings(base::Result<EmbeddingsCall> decoded, const Caller& caller) {
  if (!decoded) return refuse(context_, caller.exchange, std::move(decoded).error());
  const std::string model = context_.names->known(*decoded->submission.model);
  decoded->submission.model = model;
  if (!decoded->only_finds_model) return submit_embeddings(*std::move(decoded), caller);
  tasks::find_model(context_, model, tasks::Naming::kLook, caller.correlation_id,
                    [this, options = std::move(decoded->answer), caller](base::Result<tasks::FoundModel> found) {
                      if (!found) return refuse(context_, caller.exchange, std::move(found).error());
                      caller.exchange->respond(net::http::json_response(200, empty_embeddings(options)));
                    });
}

void Gateway::submit_embeddings(EmbeddingsCall call, const Caller& caller) {
  submitter_.submit({.request = std::move(call.submission),
                     .caller = caller.principal,
                     .correlation_id = caller.correlation_id,
                     .long_inputs = call.cuts_long_inputs ? tasks::LongInputs::kCut : tasks::LongInputs::kRefuse},
                    [this, options = std::move(call.answer), caller](base::Result<tasks::Admission> admission) mutable {
                      if (!admission) return refuse(context_, caller.exchange, std::move(admission).error());
                      ASSERT(admission->stream != nullptr, "a job without a task_id of its client's is new");
                      options.cut_inputs = std::move(admission->cut_inputs);
                      const chat::AnswerIdentity identity{.job_id = base::JobId(admission->reply.job_id),
                                                          .correlation_id = caller.correlation_id};
                      admission->stream->attach(
                          {.exchange = caller.exchange,
                           .renderer = std::make_shared<EmbeddingsRenderer>(std::move(options), identity),
                           .correlation_id = caller.correlation_id},
                          context_.clock->now().mono_ms);
                    });
}

struct Gateway::Following {
  std::string model_id;
  bool stream = true;
  base::CorrelationId correlation_id;
  net::ExchangePtr exchange;
  std::string last_line{};
};

void Gateway::pull(const net::Request& request, const net::ExchangePtr& exchange) {
  auto call = decode_pull(request.body);
  if (!call) return refuse(context_, exchange, std::move(call).error());
  exchange->release_request();
  const auto following = std::make_shared<Following>(Following{
      .model_id = {}, .stream = call->stream, .correlation_id = request.correlation_id, .exchange = exchange});
  if (context_.names->is_configured(call->model)) {  // it is here, and nobody fetches it
    following->model_id = std::move(call->model);
    return follow(following);
  }
  models_.create({.model_ref = std::move(call->model)}, request.correlation_id,
                 [this, following](base::Result<CatalogModels::Created> created) {
                   if (!created) return refuse(context_, following->exchange, std::move(created).error());
                   following->model_id = std::move(created->model_id);
                   context_.request_executor->post([this, following] { follow(following); });
                 });
}

// The model, with its pull while that runs. Errors: why the pull has failed; MODEL_NOT_FOUND (somebody has removed the name).
base::Result<wire::CatalogModel> Gateway::pulled(const std::string& model_id) const {
  if (context_.names->is_configured(model_id)) return wire::CatalogModel{.model_id = model_id};
  auto model = TRY(models_.find(model_id));
  if (!model.pull || model.pull->state != wire::PullState::kFailed) return model;
  const auto code = base::error_code_from_name(model.pull->error_code.value_or(""));
  return base::fail(code.value_or(base::ErrorCode::kInternal),
                    model.pull->error_message.value_or("no reason is known"));
}

void Gateway::follow(const std::shared_ptr<Following>& following) {
  constexpr std::int64_t kFollowMs = 200;
  constexpr std::size_t kQueuedBytesMax = 64 << 10;  // a client that reads nothing is told the end alone
  net::Exchange& exchange = *following->exchange;
  if (exchange.closed()) return;
  auto model = pulled(following->model_id);
  const bool runs = model && model->pull;
  if (!model && following->last_line.empty()) return refuse(context_, following->exchange, std::move(model).error());
  std::string line;
  if (!model) {
    append_error(line, wire::error_body(model.error(), following->correlation_id));
    line += '\n';
  } else {
    line = runs ? pull_line(*model->pull) : pulled_line(*model);
  }
  if (!following->stream) {
    if (!runs) return void(exchange.respond(net::http::json_response(200, std::move(line))));
  } else if (!runs || exchange.queued_bytes() <= kQueuedBytesMax) {
    tell(*following, std::move(line));
  }
  if (!runs) return void(exchange.end());
  context_.request_executor->post_after(kFollowMs, [this, following] { follow(following); });
}

void Gateway::tell(Following& following, std::string line) {
  if (line == following.last_line) return;
  if (following.last_line.empty()) {
    net::http::Headers headers = net::http::json_response(200, "").headers;
    headers.set("Content-Type", "application/x-ndjson");
    following.exchange->start_stream(200, std::move(headers));
  }
  following.exchange->write(line);
  following.last_line = std::move(line);
}

void Gateway::copy(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto call = decode_copy(request.body);
  if (!call) return refuse(context_, exchange, call.error());
  models_.copy(context_.names->known(call->source), call->destination, request.correlation_id,
               [this, exchange](base::Result<CatalogModels::Created> created) {
                 if (!created) return refuse(context_, exchange, std::move(created).error());
                 const auto model = models_.find(created->model_id);
                 if (!model) return refuse(context_, exchange, model.error());
                 exchange->respond(net::http::json_response(200, wire::encode(*model)));
               });
}

void Gateway::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto named = decode_delete(request.body);
  if (!named) return refuse(context_, exchange, named.error());
  models_.remove(context_.names->known(*named), [this, exchange](base::Result<wire::CatalogRemoved> removed) {
    if (!removed) return refuse(context_, exchange, std::move(removed).error());
    exchange->respond(net::http::json_response(200, wire::encode(*removed)));
  });
}

void Gateway::tags(const net::Request&, const net::ExchangePtr& exchange) {
  std::vector<ListedModel> models;
  for (const wire::CatalogModel& model : context_.names->list()) {
    if (!model.model_ref.empty())
      models.push_back({model.model_id, model.model_ref, context_.catalog->known_facts(model.model_ref)});
  }
  exchange->respond(net::http::json_response(200, tags_body(models, started_unix_ms())));
}

void Gateway::show(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto asked = decode_show(request.body);
  if (!asked) return refuse(context_, exchange, asked.error());
  const std::string named = context_.names->known(*asked);
  tasks::find_model(
      context_, named, tasks::Naming::kLook, request.correlation_id,
      [this, named, exchange](base::Result<tasks::FoundModel> found) {
        if (!found) return refuse(context_, exchange, std::move(found).error());
        exchange->respond(net::http::json_response(200, show_body(named, found->model, started_unix_ms())));
      });
}

void Gateway::ps(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, exchange](const core::AnswerQueryPools& answer) {
        const std::map<std::string, std::string> names = names_by_reference(context_);
        std::vector<RunningModel> models;
        for (const core::PoolView& pool : answer.pools) {
          for (const wire::WorkerInfo& worker : pool.workers) {
            if (!serves(worker)) continue;
            const auto name = names.find(worker.model_ref);
            models.push_back({name == names.end() ? worker.model_ref : name->second,
                              context_.catalog->known_facts(worker.model_ref), worker});
          }
        }
        exchange->respond(net::http::json_response(200, ps_body(models)));
      });
}

void Gateway::version(const net::Request&, const net::ExchangePtr& exchange) {
  exchange->respond(net::http::json_response(
      200, fmt::format(R"({{"version":"{}","llorch":"{}"}})", kOllamaVersion, base::kVersion)));
}

std::int64_t Gateway::started_unix_ms() const {
  const base::Time now = context_.clock->now();
  return now.unix_ms - (now.mono_ms - context_.started_mono_ms);
}

}  // namespace llorch::orchestratord::http::ollama
