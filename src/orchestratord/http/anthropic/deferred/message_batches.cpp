#include "orchestratord/http/anthropic/deferred/message_batches.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "orchestratord/http/anthropic/deferred/batch_texts.h"
#include "orchestratord/http/anthropic/errors.h"
#include "orchestratord/http/anthropic/models.h"
#include "orchestratord/http/anthropic/renderer.h"
#include "orchestratord/http/blob_sender.h"
#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/deferred/owned_blobs.h"
#include "orchestratord/http/tasks/kept_facts.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

namespace json = boost::json;
using base::ErrorCode;
using store::blobs::Blob;

constexpr std::string_view kRequests = "message_batch_requests", kResults = "message_batch_results";

std::string requests_id(std::string_view id) { return fmt::format("{}-requests", id); }
std::string results_id(std::string_view id) { return fmt::format("{}-results", id); }

bool has_ended(const json::object& facts) { return deferred::is_final(deferred::status_of(facts)); }

}  // namespace

std::string MessageBatches::view(const Blob& blob) const { return batch_object(blob.id, runner_.facts_of(blob)); }

const Blob* MessageBatches::find(const net::Request& request, const net::ExchangePtr& exchange) const {
  const Blob* blob = deferred::find_owned(context_, kKind, request.path_param("id"), request.peer.principal);
  if (blob != nullptr) return blob;
  refuse(context_, exchange,
         {ErrorCode::kNotFound, "no batch has this id: it never was, was deleted, or has expired", {}});
  return nullptr;
}

// The batch is there when its own blob is, which comes last.
base::Result<> MessageBatches::keep(const std::string& id, const net::http::Principal& caller, std::string_view body) {
  TRY(runner_.check_count(caller.account));
  const BatchInput input = TRY(decode_batch(body));
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  const auto facts_of = [&](std::string_view kind) {
    return store::blobs::Facts{
        .kind = std::string(kind), .tenant_id = caller.account, .created_unix_ms = now_ms, .body = {}};
  };
  TRY(context_.blobs->create(requests_id(id), facts_of(kRequests), input.lines));
  TRY(context_.blobs->create(results_id(id), facts_of(kResults)));
  return runner_.create(*this, id, deferred::fresh_facts(caller, input.requests_count, now_ms / 1000));
}

void MessageBatches::create(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string id = "msgbatch_" + base::uuid_v4(*context_.entropy);
  if (auto kept = keep(id, request.peer.principal, request.body); !kept) {
    erase_parts(id);
    return refuse(context_, exchange, std::move(kept).error());
  }
  exchange->respond(net::http::json_response(200, view(*context_.blobs->find(id))));
}

void MessageBatches::list(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::vector<const Blob*> blobs = deferred::list_owned(context_, kKind, request.peer.principal);
  auto page = deferred::list_page(request, kPages, deferred::ids_of(blobs),
                                  [&](std::size_t index) { return view(*blobs[index]); });
  if (!page) return refuse(context_, exchange, std::move(page).error());
  exchange->respond(net::http::json_response(200, *std::move(page)));
}

void MessageBatches::show(const net::Request& request, const net::ExchangePtr& exchange) {
  if (const Blob* blob = find(request, exchange)) exchange->respond(net::http::json_response(200, view(*blob)));
}

void MessageBatches::results(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  if (!has_ended(runner_.facts_of(*blob))) {
    return refuse(
        context_, exchange,
        {ErrorCode::kConflict, "the batch has no results yet: it has them when its processing_status is ended", {}});
  }
  const std::string results = results_id(blob->id);
  if (context_.blobs->find(results) == nullptr) {
    return refuse(context_, exchange, {ErrorCode::kNotFound, "the results of this batch have expired", {}});
  }
  send_blobs(context_, {results}, "application/x-jsonl", exchange);
}

void MessageBatches::cancel(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  if (auto cancelled = runner_.cancel(*blob); !cancelled) {
    return refuse(context_, exchange, std::move(cancelled).error());
  }
  exchange->respond(net::http::json_response(200, view(*blob)));
}

void MessageBatches::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  const Blob* blob = find(request, exchange);
  if (blob == nullptr) return;
  const std::string id = blob->id;
  if (!has_ended(runner_.facts_of(*blob))) {
    return refuse(context_, exchange,
                  {ErrorCode::kConflict, "the batch has not ended; cancel it before it is deleted", {}});
  }
  for (const std::string& part : {requests_id(id), results_id(id), id}) {
    if (auto erased = context_.blobs->erase(part); !erased) {
      return refuse(context_, exchange, std::move(erased).error());
    }
  }
  exchange->respond(net::http::json_response(200, fmt::format(R"({{"id":"{}","type":"message_batch_deleted"}})", id)));
}

void MessageBatches::erase_parts(const std::string& id) const {
  for (const std::string& part : {requests_id(id), results_id(id)}) (void)context_.blobs->erase(part);
}

void MessageBatches::remove_orphans() const {
  std::vector<std::string> orphans;
  for (const std::string_view kind : {kRequests, kResults}) {
    for (const Blob* part : context_.blobs->list(kind)) {
      const Blob* batch = context_.blobs->find(part->id.substr(0, part->id.rfind('-')));
      const bool needed = batch != nullptr && (kind == kResults || !has_ended(tasks::object_of(batch->facts.body)));
      if (!needed) orphans.push_back(part->id);
    }
  }
  for (const std::string& id : orphans) (void)context_.blobs->erase(id);
}

deferred::BatchBlobs MessageBatches::blobs_of(const std::string& id, const json::object&) const {
  return {.input = requests_id(id), .answers = results_id(id), .failures = results_id(id)};
}

std::optional<deferred::BatchLine> MessageBatches::line_of(const json::object&, std::string_view text) const {
  return request_of_line(text);
}

base::Result<tasks::DeferredJobPtr> MessageBatches::job_of(const json::object&, deferred::BatchRequest request) const {
  Request decoded = TRY(decode_batched(request.body, request.name, context_.config->orchestratord.limits.max_tokens));
  auto job = std::make_shared<tasks::DeferredJob>();
  job->submission = {.request = std::move(decoded.submission),
                     .caller = std::move(request.caller),
                     .correlation_id = request.identity.correlation_id,
                     .tool_use = std::move(decoded.tool_use),
                     .long_outputs = tasks::LongOutputs::kCut};
  job->submission.request.task_id = std::move(request.task_id);
  job->make_renderer = [options = std::move(decoded.answer), identity = std::move(request.identity)](
                           const wire::SubmitReply&, std::shared_ptr<const chat::Reading> reading) {
    AnswerOptions of_this_try = options;
    of_this_try.reading = std::move(reading);
    return std::make_shared<MessageRenderer>(of_this_try, identity);
  };
  return job;
}

net::Response MessageBatches::refusal(const base::Error& error, const base::CorrelationId& correlation_id) const {
  return error_response(error, correlation_id);
}

std::string MessageBatches::result_line(std::string_view custom_id, std::string_view,
                                        const net::Response& answer) const {
  return anthropic::result_line(custom_id, answer);
}

std::optional<deferred::BatchResult> MessageBatches::result_of(std::string_view line) const {
  return result_of_line(line);
}

std::string MessageBatches::unanswered_line(std::string_view custom_id, bool cancelled) const {
  return anthropic::unanswered_line(custom_id, cancelled);
}

// The results are shown when the facts say that the batch has ended; here they get an end of their own.
base::Result<> MessageBatches::reveal(const std::string& id, json::object&, std::int64_t expires_unix_ms) {
  const Blob* blob = context_.blobs->find(results_id(id));
  if (blob == nullptr) return {};
  store::blobs::Facts facts = blob->facts;
  facts.expires_unix_ms = expires_unix_ms;
  return context_.blobs->set_facts(blob->id, std::move(facts));
}

void MessageBatches::ended(const std::string& id) { (void)context_.blobs->erase(requests_id(id)); }

}  // namespace llorch::orchestratord::http::anthropic
