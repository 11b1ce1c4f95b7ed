#include "orchestratord/http/llamacpp/gateway.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "orchestratord/core/jobs/job.h"
#include "orchestratord/http/chat/only_model.h"
#include "orchestratord/http/llamacpp/answers.h"
#include "orchestratord/http/llamacpp/completion/renderer.h"
#include "orchestratord/http/llamacpp/embedding/embedding.h"
#include "orchestratord/http/llamacpp/request.h"
#include "orchestratord/http/llamacpp/rerank.h"

namespace llorch::orchestratord::http::llamacpp {

base::Result<std::string> Gateway::name_of(const std::optional<std::string>& model,
                                           std::optional<wire::Workload> workload) const {
  if (model) return *model;
  return chat::only_model(chat::with_known_facts(context_.names->list(), *context_.catalog), workload);
}

void Gateway::answer(const net::Request& request, const Asked& asked, Answer answer,
                     const net::ExchangePtr& exchange) const {
  const auto name = name_of(asked.model, asked.workload);
  if (!name) return refuse(context_, exchange, name.error());
  tasks::find_model(context_, *name, tasks::Naming::kUse, request.correlation_id,
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
      request, {.model = model, .workload = {}},
      [body = *std::move(decoded)](const models::KnownModel& known) { return tokenize_body(*known.tokenizer, body); },
      exchange);
}

void Gateway::detokenize(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = decode_detokenize(request.body);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  const auto model = decoded->model;
  answer(
      request, {.model = model, .workload = {}},
      [this, body = *std::move(decoded)](const models::KnownModel& known) {
        return detokenize_body(*known.tokenizer, body.tokens, context_.config->orchestratord.limits.prompt_bytes_max);
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
      request, {.model = model, .workload = wire::Workload::kCompletion},
      [this, inputs = *std::move(inputs)](const models::KnownModel& known) -> base::Result<std::string> {
        const auto prepared = TRY(tasks::prepare(inputs, chat::ToolUse{}, known, context_.clock->now()));
        return apply_template_body(prepared.prompt.text);
      },
      exchange);
}

void Gateway::props(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto asked = request.query_param("model");
  const auto name = name_of(asked ? std::optional<std::string>(*asked) : std::nullopt, wire::Workload::kCompletion);
  if (!name) return refuse(context_, exchange, name.error());
  tasks::find_model(context_, *name, tasks::Naming::kLook, request.correlation_id,
                    [this, name = *name, exchange](base::Result<tasks::FoundModel> found) {
                      if (!found) return refuse(context_, exchange, std::move(found).error());
                      const std::int64_t context = core::jobs::context_tokens(
                          found->model.facts, context_.config->orchestratord.worker_context_tokens);
                      exchange->respond(net::http::json_response(200, props_body(name, found->model, context)));
                    });
}

bool Gateway::name_model(CompletionCall& call, const Caller& caller) const {
  auto name = name_of(call.submission.model, wire::Workload::kCompletion);
  if (!name) {
    refuse(context_, caller.exchange, std::move(name).error());
    return false;
  }
  call.submission.model = call.answer.model = *std::move(name);
  return true;
}

void Gateway::completion(const net::Request& request, const net::ExchangePtr& exchange) {
  auto call = decode_completion(request.body);
  if (!call) return refuse(context_, exchange, std::move(call).error());
  if (const auto fits = check_bytes(call->prompt, context_.config->orchestratord.limits.prompt_bytes_max); !fits) {
    return refuse(context_, exchange, fits.error());
  }
  Caller caller{request.peer.principal, request.correlation_id, exchange};
  if (!name_model(*call, caller)) return;
  const std::string model = *call->submission.model;
  tasks::find_model(context_, model, tasks::Naming::kLook, caller.correlation_id,
                    [this, call = *std::move(call), caller](base::Result<tasks::FoundModel> found) mutable {
                      if (!found) return refuse(context_, caller.exchange, std::move(found).error());
                      auto set = set_prompt(call, found->model.tokenizer.get());
                      if (!set) return refuse(context_, caller.exchange, std::move(set).error());
                      submit(std::move(call), std::move(caller));
                    });
}

void Gateway::infill(const net::Request& request, const net::ExchangePtr& exchange) {
  auto call = decode_infill(request.body);
  if (!call) return refuse(context_, exchange, std::move(call).error());
  Caller caller{request.peer.principal, request.correlation_id, exchange};
  if (name_model(*call, caller)) submit(*std::move(call), std::move(caller));
}

void Gateway::submit(CompletionCall call, Caller caller) {
  submitter_.submit({.request = std::move(call.submission),
                     .caller = caller.principal,
                     .correlation_id = caller.correlation_id,
                     .long_outputs = tasks::LongOutputs::kCut},
                    [this, options = std::move(call.answer), caller](base::Result<tasks::Admission> admission) mutable {
                      if (!admission) return refuse(context_, caller.exchange, std::move(admission).error());
                      ASSERT(admission->stream != nullptr, "a job without a task_id of its client's is new");
                      options.tokens_in = admission->tokens_in;
                      const chat::AnswerIdentity identity{.job_id = base::JobId(admission->reply.job_id),
                                                          .correlation_id = caller.correlation_id};
                      admission->stream->attach(
                          {.exchange = caller.exchange,
                           .renderer = std::make_shared<CompletionRenderer>(std::move(options), identity),
                           .correlation_id = caller.correlation_id},
                          context_.clock->now().mono_ms);
                    });
}

void Gateway::submit_whole(wire::SubmitRequest submission, Caller caller, MakeRenderer make_renderer) {
  auto name = name_of(submission.model, submission.workload.value_or(wire::Workload::kCompletion));
  if (!name) return refuse(context_, caller.exchange, std::move(name).error());
  submission.model = *name;
  submitter_.submit(
      {.request = std::move(submission), .caller = caller.principal, .correlation_id = caller.correlation_id},
      [this, make_renderer = std::move(make_renderer), model = *std::move(name),
       caller](base::Result<tasks::Admission> admission) {
        if (!admission) return refuse(context_, caller.exchange, std::move(admission).error());
        ASSERT(admission->stream != nullptr, "a job without a task_id of its client's is new");
        admission->stream->attach({.exchange = caller.exchange,
                                   .renderer = make_renderer(model, {.job_id = base::JobId(admission->reply.job_id),
                                                                     .correlation_id = caller.correlation_id}),
                                   .correlation_id = caller.correlation_id},
                                  context_.clock->now().mono_ms);
      });
}

void Gateway::embedding(const net::Request& request, const net::ExchangePtr& exchange) {
  auto submission = decode_embedding(request.body);
  if (!submission) return refuse(context_, exchange, std::move(submission).error());
  submit_whole(*std::move(submission), {request.peer.principal, request.correlation_id, exchange},
               [](const std::string&, chat::AnswerIdentity identity) {
                 return std::make_shared<EmbeddingRenderer>(std::move(identity));
               });
}

void Gateway::rerank(const net::Request& request, const net::ExchangePtr& exchange) {
  auto call = decode_rerank(request.body);
  if (!call) return refuse(context_, exchange, std::move(call).error());
  submit_whole(std::move(call->submission), {request.peer.principal, request.correlation_id, exchange},
               [options = std::move(call->answer)](std::string model, chat::AnswerIdentity identity) mutable {
                 options.model = std::move(model);
                 return std::make_shared<RerankRenderer>(options, std::move(identity));
               });
}

void Gateway::slots(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, request, exchange](const core::AnswerQueryPools& pools) {
        context_.core->ask<core::AnswerQueryGauges>(
            core::QueryGauges{}, [this, pools, request, exchange](const core::AnswerQueryGauges& answer) {
              tell_slots(pools, answer.gauges, request, exchange);
            });
      });
}

void Gateway::tell_slots(const core::AnswerQueryPools& pools, const core::Gauges& gauges, const net::Request& request,
                         const net::ExchangePtr& exchange) const {
  std::optional<std::string> wanted;  // the reference of `model`, if the request names one
  if (const auto model = request.query_param("model")) {
    auto ref = context_.names->reference_of(*model);  // this is the core's thread, which waits for no disk
    if (!ref) return refuse(context_, exchange, std::move(ref).error());
    wanted = *std::move(ref);
  }
  std::map<base::WorkerId, std::int64_t> busy;
  for (const auto& worker : gauges.worker_connections) busy[worker.worker_id] = worker.active;
  const std::map<std::string, std::string> names = names_by_reference(context_);
  std::vector<WorkerSlots> workers;
  bool is_any_idle = false;
  for (const core::PoolView& pool : pools.pools) {
    if (pool.status != wire::PoolStatus::kHealthy) continue;
    for (const wire::WorkerInfo& worker : pool.workers) {
      if (!serves(worker) || (wanted && worker.model_ref != *wanted)) continue;
      const std::int64_t running = std::min(busy[base::WorkerId(worker.worker_id)], worker.slots_total);
      is_any_idle = is_any_idle || running < worker.slots_total;
      const auto name = names.find(worker.model_ref);
      workers.push_back({.model = name == names.end() ? worker.model_ref : name->second,
                         .total = worker.slots_total,
                         .busy = running,
                         .context_tokens = worker.context_length});
    }
  }
  if (!is_any_idle && request.query_param("fail_on_no_slot")) {
    return refuse(context_, exchange,
                  {base::ErrorCode::kPoolUnready,
                   "no slot of a worker is idle; a request waits in the queue, and GET /v2/tasks/{id} says for what",
                   {}});
  }
  exchange->respond(net::http::json_response(200, slots_body(workers)));
}

}  // namespace llorch::orchestratord::http::llamacpp
