#include "orchestratord/http/ollama/gateway.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/version.h"
#include "orchestratord/http/ollama/models.h"
#include "orchestratord/http/ollama/renderer.h"

namespace llorch::orchestratord::http::ollama {

void Gateway::chat(const net::Request& request, const net::ExchangePtr& exchange) {
  serve(decode_chat(request.body), {request.peer.principal, request.correlation_id, exchange});
}

void Gateway::generate(const net::Request& request, const net::ExchangePtr& exchange) {
  serve(decode_generate(request.body), {request.peer.principal, request.correlation_id, exchange});
}

void Gateway::serve(base::Result<Request> decoded, Caller caller) {
  if (!decoded) return refuse(context_, caller.exchange, std::move(decoded).error());
  const std::string model = known_name(*context_.names, *decoded->submission.model);
  decoded->submission.model = model;
  if (!decoded->only_finds_model && !decoded->plain_prompt) return submit(*std::move(decoded), std::move(caller));
  tasks::find_model(context_, context_.names->resolve(model), caller.correlation_id,
                    [this, request = *std::move(decoded), caller](base::Result<tasks::FoundModel> found) mutable {
                      if (!found) return refuse(context_, caller.exchange, std::move(found).error());
                      if (request.only_finds_model) {
                        const std::int64_t now_s = context_.clock->now().unix_ms / 1000;
                        caller.exchange->respond(net::http::json_response(200, empty_answer(request.answer, now_s)));
                        return;
                      }
                      if (!found->model.chat->has_template()) {
                        request.submission.prompt = std::move(request.plain_prompt);
                        request.submission.messages.reset();
                        request.submission.chat_template_kwargs.reset();
                        request.tool_use.reset();
                      }
                      submit(std::move(request), std::move(caller));
                    });
}

void Gateway::submit(Request request, Caller caller) {
  submitter_.submit(
      {.request = std::move(request.submission),
       .caller = caller.principal,
       .correlation_id = caller.correlation_id,
       .tool_use = std::move(request.tool_use)},
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

void Gateway::tags(const net::Request&, const net::ExchangePtr& exchange) {
  std::vector<ListedModel> models;
  for (const wire::CatalogModel& model : context_.names->list()) {
    if (!model.model_ref.empty()) models.push_back({model.model_id, context_.catalog->known_facts(model.model_ref)});
  }
  exchange->respond(net::http::json_response(200, tags_body(models, started_unix_ms())));
}

void Gateway::show(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto named = decode_show(request.body);
  if (!named) return refuse(context_, exchange, named.error());
  tasks::find_model(context_, context_.names->resolve(known_name(*context_.names, *named)), request.correlation_id,
                    [this, exchange](base::Result<tasks::FoundModel> found) {
                      if (!found) return refuse(context_, exchange, std::move(found).error());
                      exchange->respond(net::http::json_response(200, show_body(found->model, started_unix_ms())));
                    });
}

void Gateway::ps(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, exchange](const core::AnswerQueryPools& answer) {
        std::map<std::string, std::string> names;  // by reference
        for (const wire::CatalogModel& model : context_.names->list()) names.emplace(model.model_ref, model.model_id);
        std::vector<RunningModel> models;
        for (const core::PoolView& pool : answer.pools) {
          for (const wire::WorkerInfo& worker : pool.workers) {
            if (worker.status != wire::WorkerStatus::kReady && worker.status != wire::WorkerStatus::kBusy) continue;
            const auto name = names.find(worker.model_ref);
            models.push_back({name == names.end() ? worker.model_ref : name->second,
                              context_.catalog->known_facts(worker.model_ref), worker});
          }
        }
        exchange->respond(net::http::json_response(200, ps_body(models)));
      });
}

void Gateway::version(const net::Request&, const net::ExchangePtr& exchange) {
  exchange->respond(net::http::json_response(200, fmt::format(R"({{"version":"{}"}})", base::kVersion)));
}

std::int64_t Gateway::started_unix_ms() const {
  const base::Time now = context_.clock->now();
  return now.unix_ms - (now.mono_ms - context_.started_mono_ms);
}

}  // namespace llorch::orchestratord::http::ollama
