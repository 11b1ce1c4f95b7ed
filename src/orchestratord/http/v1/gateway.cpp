#include "orchestratord/http/v1/gateway.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>

#include <memory>
#include <utility>

#include "orchestratord/http/sessions.h"
#include "orchestratord/http/tenancy.h"
#include "orchestratord/http/v1/request.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::v1 {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;

// As /v2 sends it, but for the event `queued`, which this API does not have.
class StreamRenderer final : public streams::SseRenderer {
 public:
  void queued(const wire::QueuedEvent&, const streams::EventId&, std::string&) override {}
};

net::http::Response admission_response(const wire::SubmitReply& reply) {
  const std::string stream = fmt::format("/v1/tasks/{}/stream", reply.task_id);
  net::http::Response response = net::http::json_response(
      202, json::serialize(json::object{{"task_id", reply.task_id},
                                        {"job_id", reply.job_id},
                                        {"queue_position", reply.queue_position},
                                        {"predicted_start_ms", reply.predicted_start_ms},
                                        {"backoff_ms", reply.backoff_ms},
                                        {"streams", {{"sse", stream}, {"sse_verbose", stream + "?verbose=true"}}}}));
  add_budget_headers(reply.budget, response.headers);
  return response;
}

Error no_such_task() { return {ErrorCode::kJobNotFound, "no task has this id, or its record is gone", {}}; }

}  // namespace

void Gateway::submit(const net::Request& request, const net::ExchangePtr& exchange) {
  auto task = decode_task(request.body);
  if (!task) return refuse(context_, exchange, std::move(task).error());
  submitter_.submit({.request = std::move(task->submission),
                     .caller = request.peer.principal,
                     .correlation_id = request.correlation_id,
                     .context_tokens = task->context_tokens},
                    [this, exchange](base::Result<tasks::Admission> admission) {
                      if (!admission) return refuse(context_, exchange, std::move(admission).error());
                      exchange->respond(admission_response(admission->reply));
                    });
}

void Gateway::preview(const net::Request& request, const net::ExchangePtr& exchange) {
  auto task = decode_task(request.body);
  if (!task) return refuse(context_, exchange, std::move(task).error());
  submitter_.preview({.request = std::move(task->submission),
                      .caller = request.peer.principal,
                      .correlation_id = request.correlation_id,
                      .context_tokens = task->context_tokens},
                     [this, exchange](base::Result<wire::JobPreview> preview) {
                       if (!preview) return refuse(context_, exchange, std::move(preview).error());
                       exchange->respond(net::http::json_response(200, wire::encode(*preview)));
                     });
}

void Gateway::find_job(const net::Request& request, const net::ExchangePtr& exchange,
                       std::function<void(const base::JobId& job_id)> then) {
  const std::string& task_id = request.path_param("id");
  if (!base::is_valid_identifier(task_id)) return refuse(context_, exchange, no_such_task());
  const auto& caller = request.peer.principal;
  if (base::is_uuid(task_id)) return then(job_id_of_task(caller, task_id));
  context_.store->find_task(kept_id(caller, task_id), [this, exchange, then = std::move(then)](
                                                          base::Result<std::optional<store::JobRecord>> found) {
    if (!found) return refuse(context_, exchange, std::move(found).error());
    if (!*found) return refuse(context_, exchange, no_such_task());
    then((*found)->job_id);
  });
}

void Gateway::stream(const net::Request& request, const net::ExchangePtr& exchange) {
  std::optional<streams::EventId> last;
  if (const auto header = request.headers.get("Last-Event-ID"); header && !header->empty()) {
    const auto parsed = streams::parse_event_id(*header);
    if (!parsed) return refuse(context_, exchange, parsed.error());
    last = *parsed;
  }
  find_job(request, exchange,
           [this, exchange, last, caller = request.peer.principal, correlation_id = request.correlation_id,
            is_head = request.method == "HEAD"](const base::JobId& job_id) {
             tasks_.serve({.job_id = job_id,
                           .stream = context_.hub->find(job_id),
                           .caller = caller,
                           .is_head = is_head,
                           .counted = true},
                          {.exchange = exchange,
                           .renderer = std::make_shared<StreamRenderer>(),
                           .last_event_id = last,
                           .correlation_id = correlation_id},
                          [this, exchange](Error error) { refuse(context_, exchange, std::move(error)); });
           });
}

void Gateway::cancel(const net::Request& request, const net::ExchangePtr& exchange) {
  find_job(request, exchange, [this, exchange, caller = request.peer.principal](const base::JobId& job_id) {
    tasks_.cancel(job_id, caller, [this, exchange](base::Result<> cancelled) {
      if (!cancelled) return refuse(context_, exchange, std::move(cancelled).error());
      exchange->respond({204, {}, {}});
    });
  });
}

void Gateway::remove_session(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto& caller = request.peer.principal;
  const std::string& id = request.path_param("id");
  if (!base::is_valid_identifier(id)) {
    return refuse(context_, exchange, {ErrorCode::kNotFound, "no session has this id", {}});
  }
  context_.core->ask<core::AnswerSession>(
      core::CloseSession{.request = {}, .session_id = base::SessionId(kept_id(caller, id))},
      [this, caller, exchange](core::AnswerSession answer) {
        if (!answer.result) return refuse(context_, exchange, shown(caller, std::move(answer.result).error()));
        exchange->respond({204, {}, {}});
      });
}

}  // namespace llorch::orchestratord::http::v1
