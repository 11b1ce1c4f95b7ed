#include "orchestratord/http/tasks/kept_results.h"

#include <boost/json/serialize.hpp>
#include <utility>

#include "base/log.h"
#include "net/http/error_response.h"
#include "orchestratord/http/blob_sender.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tasks/result_renderer.h"
#include "orchestratord/http/tenancy.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

using base::ErrorCode;

constexpr std::size_t kWholeBytesMax = 1 << 20;  // a longer result is sent as its client takes it

std::string id_of(const std::string& task_id) { return "result_" + uuid_of_name("llama-orch result of " + task_id); }

}  // namespace

KeptResults::OpenPtr KeptResults::make_open(std::string id, Submission submission) const {
  auto open = std::make_shared<Open>();
  open->id = std::move(id);
  open->keep_ms = submission.request.result->keep_ms;
  auto job = std::make_shared<DeferredJob>();
  job->make_renderer = [workload = submission.request.workload.value_or(wire::Workload::kCompletion)](
                           const wire::SubmitReply& first, const std::shared_ptr<const chat::Reading>&) {
    return std::make_shared<ResultRenderer>(first.job_id, first.task_id, workload);
  };
  job->submission = std::move(submission);
  open->job = std::move(job);
  return open;
}

void KeptResults::submit(Submission submission, Submitter::Done done) {
  if (!submission.request.task_id) submission.request.task_id = base::uuid_v4(*context_.entropy);
  submission.request.on_disconnect = wire::OnDisconnect::kResume;  // whoever goes wants it all the same
  context_.files->post([this, submission = std::move(submission), done = std::move(done)]() mutable {
    begin(std::move(submission), std::move(done));
  });
}

void KeptResults::begin(Submission submission, Submitter::Done done) {
  const std::string id = id_of(kept_id(submission.caller, *submission.request.task_id));
  if (const auto it = open_.find(id); it != open_.end() && it->second->created) {
    it->second->repeated.emplace_back(std::move(submission), std::move(done));
    return;
  }
  if (context_.blobs->find(id) != nullptr) return submit_again(std::move(submission), std::move(done));
  const boost::json::object facts{{"request", wire::encode(submission.request)},
                                  {"caller", to_json(submission.caller)}};
  auto kept = context_.blobs->create(id, {.kind = std::string(kKind),
                                          .tenant_id = submission.caller.account,
                                          .created_unix_ms = context_.clock->now().unix_ms,
                                          .expires_unix_ms = {},
                                          .body = boost::json::serialize(facts)});
  if (!kept) return done(base::fail(std::move(kept).error()));
  const OpenPtr open = make_open(id, std::move(submission));
  open->created = std::move(done);
  open_.emplace(id, open);
  run(open);
}

// The same job again, or a refusal.
void KeptResults::submit_again(Submission submission, Submitter::Done done) {
  context_.request_executor->post([this, submission = std::move(submission), done = std::move(done)]() mutable {
    submitter_.submit(std::move(submission), std::move(done));
  });
}

void KeptResults::run(const OpenPtr& open) {
  const auto admitted = [this, open](const wire::SubmitReply& first, Admission now) {
    // Where the job runs under another name, the result is found under its own all the same; its events are those of the job that runs.
    now.reply.job_id = first.job_id;
    now.reply.task_id = first.task_id;
    open->waits_for.clear();
    answer_created(open, std::move(now));
  };
  run_deferred(context_, submitter_, open->job,
               {.admitted = admitted,
                .done = [this, open](base::Result<net::Response> answer) { on_done(open, std::move(answer)); }},
               {.asked_unix_ms = open->asked_unix_ms});
}

void KeptResults::answer_created(const OpenPtr& open, base::Result<Admission> admission) {
  if (!open->created) return;
  std::exchange(open->created, {})(std::move(admission));
  begin_repeated(open);
}

void KeptResults::begin_repeated(const OpenPtr& open) {
  for (auto& [submission, done] : std::exchange(open->repeated, {})) begin(std::move(submission), std::move(done));
}

void KeptResults::on_done(const OpenPtr& open, base::Result<net::Response> answer) {
  if (answer) {
    keep(open, *answer);
    if (!open->created) return;
    // It failed before its result was asked for once more, and nothing was admitted now.
    submit_again(open->job->submission, std::exchange(open->created, {}));
    return begin_repeated(open);
  }
  if (open->created) {
    (void)context_.blobs->erase(open->id);
    open_.erase(open->id);
    return answer_created(open, base::fail(std::move(answer).error()));
  }
  // It was accepted once, so it waits for what passes.
  if (may_pass(context_, answer.error())) {
    open->waits_for = answer.error().message;
    return context_.files->post_after(kDeferredRetryMs, [this, open] { run(open); });
  }
  keep(open, net::http::error_response(answer.error(), open->job->submission.correlation_id));
}

void KeptResults::keep(const OpenPtr& open, const net::Response& answer) {
  const store::blobs::Blob* blob = context_.blobs->find(open->id);
  if (blob == nullptr) return void(open_.erase(open->id));  // somebody erased it meanwhile
  if (blob->content_bytes == 0) {
    if (const auto room = context_.blobs->check_answer(blob->facts.tenant_id, answer.body.size()); !room) {
      return keep(open, net::http::error_response(room.error(), open->job->submission.correlation_id));
    }
  }
  const auto kept = context_.blobs->complete(
      open->id, {.content = answer.body,
                 .body = boost::json::serialize(boost::json::object{{"status", answer.status}}),
                 .expires_unix_ms = context_.clock->now().unix_ms + open->keep_ms});
  if (!kept) return context_.files->post_after(kDeferredRetryMs, [this, open, answer] { keep(open, answer); });
  open_.erase(open->id);
}

base::Result<const store::blobs::Blob*> KeptResults::find(const std::string& task_id) const {
  const store::blobs::Blob* blob = context_.blobs->find(id_of(task_id));
  if (blob == nullptr) {
    return base::fail(ErrorCode::kNotFound,
                      "no result of this job is kept: it did not ask for that (result.keep_ms), or its time is over");
  }
  if (!blob->facts.expires_unix_ms) {
    const auto open = open_.find(blob->id);
    std::string message = "the job has not ended; GET /v2/tasks/{id} says how far it is";
    if (open != open_.end() && !open->second->waits_for.empty()) {
      message = "the job is tried again, for it was refused: " + open->second->waits_for;
    }
    return base::fail(ErrorCode::kConflict, std::move(message));
  }
  return blob;
}

void KeptResults::answer(const std::string& task_id, const net::ExchangePtr& exchange) const {
  const auto blob = find(task_id);
  if (!blob) return refuse(context_, exchange, blob.error());
  if ((*blob)->content_bytes > kWholeBytesMax) {
    return send_blobs(context_, {(*blob)->id}, "application/json", exchange);
  }
  auto content = context_.blobs->read((*blob)->id, 0, kWholeBytesMax);
  if (!content) return refuse(context_, exchange, std::move(content).error());
  const auto status = static_cast<int>(number_of(object_of((*blob)->facts.body), "status"));
  exchange->respond(net::http::json_response(status, *std::move(content)));
}

base::Result<> KeptResults::erase(const std::string& task_id) {
  TRY(find(task_id));
  return context_.blobs->erase(id_of(task_id));
}

// An error says its own, and is short.
int KeptResults::status_of(const store::blobs::Blob& blob) const {
  constexpr int kSuccess = 200;
  if (blob.content_bytes > kWholeBytesMax) return kSuccess;
  auto content = context_.blobs->read(blob.id, 0, kWholeBytesMax);
  if (!content || !object_of(*content).contains("error")) return kSuccess;
  constexpr int kAnyFailure = 500;
  return base::info(net::http::error_of({.status = kAnyFailure, .headers = {}, .body = *std::move(content)}).code)
      .http_status;
}

void KeptResults::end_unreadable(const store::blobs::Blob& blob) {
  const auto open = std::make_shared<Open>();
  open->id = blob.id;
  open->keep_ms = context_.config->orchestratord.files.retention_ms;
  // The process that wrote it ended before it could say so.
  if (blob.content_bytes > 0) return keep(open, {.status = status_of(blob), .headers = {}, .body = {}});
  base::log_event(base::LogLevel::kError, "result.unreadable", {},
                  "A kept request of another version cannot be read; an error is its result.");
  keep(open,
       net::http::error_response(
           {ErrorCode::kUnsupportedFormatVersion,
            "another version of orchestratord kept the request of this result, and this one cannot read it; delete "
            "the result, or submit the job under another task_id",
            {}},
           base::CorrelationId(base::uuid_v4(*context_.entropy))));
}

void KeptResults::resume() {
  for (const store::blobs::Blob* blob : context_.blobs->list(kKind)) {
    if (blob->facts.expires_unix_ms) continue;
    const boost::json::object facts = object_of(blob->facts.body);
    const auto caller = caller_from(facts.if_contains("caller"));
    auto request = wire::decode<wire::SubmitRequest>(text_of(facts, "request"));
    if (!caller || !request || !request->result) {
      end_unreadable(*blob);
      continue;
    }
    const OpenPtr open = make_open(blob->id, {.request = *std::move(request),
                                              .caller = *caller,
                                              .correlation_id = base::CorrelationId(base::uuid_v4(*context_.entropy))});
    open->asked_unix_ms = blob->facts.created_unix_ms;
    open_.emplace(open->id, open);
    run(open);
  }
}

}  // namespace llorch::orchestratord::http::tasks
