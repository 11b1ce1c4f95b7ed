#include "orchestratord/http/openai/deferred/kept_responses.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <charconv>
#include <utility>

#include "base/log.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/deferred/list_page.h"
#include "orchestratord/http/deferred/owned_blobs.h"
#include "orchestratord/http/openai/deferred/event_text.h"
#include "orchestratord/http/openai/deferred/kept_text.h"
#include "orchestratord/http/openai/response_renderer.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tenancy.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;
using tasks::caller_from;
using tasks::flag_of;
using tasks::number_of;
using tasks::object_of;
using tasks::text_of;
using tasks::to_json;

constexpr std::size_t kReadBytesMax = 1ULL << 30;
// The responses that a request refers to are together no longer than so many of the longest requests. A conversation's are each as long as
// all of it until then, images included.
constexpr std::int64_t kReferredRequestsMax = 32;

constexpr std::string_view kIdPrefix = "resp_";

std::string id_of(const DeferredCall& call) { return std::string(kIdPrefix) + call.identity.job_id.value; }

const AnswerOptions& answer_of(const Call& call) { return std::get<AnswerOptions>(call.answer); }

// The response is rendered as a stream, whatever its client reads: that is what is kept.
Call kept_call(Call call) {
  std::get<AnswerOptions>(call.answer).stream = true;
  return call;
}

std::shared_ptr<ResponseRenderer> renderer_of(const DeferredCall& call, std::shared_ptr<const chat::Reading> reading) {
  AnswerOptions options = answer_of(call.call);
  options.reading = std::move(reading);
  return std::make_shared<ResponseRenderer>(options, call.identity);
}

std::string events_of(const DeferredCall& call, const Error& error) {
  std::string out;
  renderer_of(call, nullptr)->error(wire::error_body(error, call.identity.correlation_id), std::nullopt, out);
  return out;
}

base::Result<std::optional<std::int64_t>> starting_after(const net::Request& request) {
  const auto text = request.query_param("starting_after");
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (ec == std::errc() && end == text->data() + text->size() && value >= 0) return value;
  return base::fail(Error{ErrorCode::kInvalidParams, "starting_after is the sequence_number of an event", {}}
                        .with("field", "starting_after")
                        .with("reason", "type"));
}

}  // namespace

void KeptResponses::create(Call call, const net::Request& request, const net::ExchangePtr& exchange) {
  const bool streams = call.text_answer()->stream;
  const bool waits = !call.text_answer()->background;
  if (!call.submission.seed) call.submission.seed = context_.entropy->next_u64() >> 1;
  const net::http::Principal& caller = request.peer.principal;
  const std::string task_id = base::uuid_v4(*context_.entropy);
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  auto open = std::make_shared<Open>();
  open->facts = {{"request", request.body},
                 {"caller", to_json(caller)},
                 {"task_id", task_id},
                 {"seed", std::to_string(*call.submission.seed)}};
  open->call = std::make_shared<const DeferredCall>(DeferredCall{.call = kept_call(std::move(call)),
                                                                 .caller = caller,
                                                                 .task_id = task_id,
                                                                 .identity = {.job_id = job_id_of_task(caller, task_id),
                                                                              .correlation_id = request.correlation_id,
                                                                              .created_unix_s = now_ms / 1000}});
  open->id = id_of(*open->call);
  open->created = [this, streams, waits, raw = open.get(), exchange](base::Result<> admitted) {
    if (!admitted) return refuse(context_, exchange, std::move(admitted).error());
    if (streams)
      return attach(*raw, {exchange, std::nullopt, raw->call->identity.correlation_id, raw->call->caller.account});
    if (waits) return raw->waiting.push_back(exchange);
    exchange->respond(net::http::json_response(200, renderer_of(*raw->call, nullptr)->unfinished("queued")));
  };
  context_.files->post([this, open, now_ms] {
    if (auto begun = begin(*open, now_ms); !begun) return std::exchange(open->created, {})(std::move(begun));
    open_.emplace(open->id, open);
    run(open);
  });
}

base::Result<> KeptResponses::begin(Open& open, std::int64_t now_ms) {
  const ConversationUse& conversation = answer_of(open.call->call).conversation;
  if (!conversation.id.empty()) {
    const auto input = listed_items(open.id, input_of(text_of(open.facts, "request")));
    open.facts["conversation_items"] = TRY(conversations_.begin_turn(open.call->caller, conversation, open.id, input));
  }
  auto kept = context_.blobs->create(open.id, {.kind = std::string(kKind),
                                               .tenant_id = open.call->caller.account,
                                               .created_unix_ms = now_ms,
                                               .expires_unix_ms = {},
                                               .body = json::serialize(open.facts)});
  if (!kept) conversations_.end_turn(conversation.id);
  return kept;
}

void KeptResponses::run(const OpenPtr& open) {
  open->job_id.reset();
  run_deferred(context_, submitter_, open->call,
               {.admitted =
                    [this, open](const base::JobId& job_id, const tasks::Admission& admission) {
                      open->job_id = job_id;
                      open->admission = admission;
                      if (open->created) std::exchange(open->created, {})({});
                      for (const Reader& reader : std::exchange(open->readers, {})) attach(*open, reader);
                      if (open->cancelled || open->removed) end_job(*open);
                    },
                .done = [this, open](base::Result<net::Response> answer) { on_done(open, std::move(answer)); }},
               {.asked_unix_ms = open->asked_unix_ms});
}

void KeptResponses::on_done(const OpenPtr& open, base::Result<net::Response> answer) {
  open->job_id.reset();
  if (open->removed) return;
  if (answer) {
    std::string events;
    append_events(answer->body, {.comments = false}, events);
    return keep(open, events);
  }
  if (open->created) {
    (void)context_.blobs->erase(open->id);
    open_.erase(open->id);
    conversations_.end_turn(answer_of(open->call->call).conversation.id);
    return std::exchange(open->created, {})(base::fail(std::move(answer).error()));
  }
  // It was accepted once, so it waits for what passes.
  if (!open->cancelled && tasks::may_pass(context_, answer.error())) {
    return context_.files->post_after(kDeferredRetryMs, [this, open] {
      if (!open->removed) run(open);
    });
  }
  keep(open, events_of(*open->call, answer.error()));
}

void KeptResponses::keep(const OpenPtr& open, const std::string& events) {
  if (open->removed) return;
  if (context_.blobs->find(open->id) == nullptr) return drop(open);
  if (!settle(*open, events)) {
    return context_.files->post_after(kDeferredRetryMs, [this, open, events] { keep(open, events); });
  }
  conversations_.end_turn(answer_of(open->call->call).conversation.id);
  open_.erase(open->id);
  for (const net::ExchangePtr& exchange : open->waiting) serve_kept(open->id, {exchange}, false);
  for (const Reader& reader : open->readers) serve_kept(open->id, reader, true);
}

// Its output is on the disk first, so that it has one; then its items are in the conversation; then it has ended. Each step is
// done once, whatever process gets to it.
base::Result<> KeptResponses::settle(const Open& open, const std::string& events) {
  const store::blobs::Blob& blob = *context_.blobs->find(open.id);
  if (blob.content_bytes == 0) {
    std::string text = kept_text(input_of(text_of(open.facts, "request")), events);
    const auto room = context_.blobs->check_answer(blob.facts.tenant_id, text.size());
    if (!room) text = kept_text("[]", events_of(*open.call, room.error()));
    TRY(context_.blobs->append(open.id, text));
  }
  if (auto added = keep_turn(open); !added) {
    if (base::info(added.error().code).retriable) return added;
    base::log_event(base::LogLevel::kError, "conversation.unreadable", open.call->identity.correlation_id,
                    "A conversation cannot be read any more, and gets no items of its response; delete it.");
  }
  const std::int64_t retention_ms = context_.config->orchestratord.files.responses_retention_ms;
  const bool stays = answer_of(open.call->call).kept;
  return context_.blobs->complete(
      open.id,
      {.content = {}, .body = "{}", .expires_unix_ms = context_.clock->now().unix_ms + (stays ? retention_ms : 0)});
}

base::Result<> KeptResponses::keep_turn(const Open& open) {
  const std::string& conversation_id = answer_of(open.call->call).conversation.id;
  if (conversation_id.empty()) return {};
  const std::string kept = TRY(context_.blobs->read(open.id, 0, kReadBytesMax));
  if (!TRY(has_output(kept))) return {};
  std::vector<ListedItem> items = listed_items(open.id, input_kept(kept));
  items.erase(items.begin(), items.begin() + number_of(open.facts, "conversation_items"));
  for (const json::value& item : TRY(output_kept(kept))) {
    items.push_back({text_of(item.as_object(), "id"), json::serialize(item)});
  }
  return conversations_.keep_turn(conversation_id, open.id, std::move(items));
}

// Nobody can ask for it any more. A try that is on its way to be admitted is ended when it is.
void KeptResponses::drop(const OpenPtr& open) {
  open->removed = true;
  conversations_.end_turn(answer_of(open->call->call).conversation.id);
  end_job(*open);
  open_.erase(open->id);
  const Error deleted{ErrorCode::kCancelled, "the response was deleted before its end", {}};
  if (open->created) std::exchange(open->created, {})(base::fail(deleted));
  for (const net::ExchangePtr& exchange : std::exchange(open->waiting, {})) refuse(context_, exchange, deleted);
  for (const Reader& reader : std::exchange(open->readers, {})) refuse(context_, reader.exchange, deleted);
}

void KeptResponses::end_job(const Open& open) {
  if (!open.job_id) return;
  context_.core->post(
      core::CancelRequested{.request = {}, .job_id = *open.job_id, .reason = core::jobs::CancelReason::kClientRequest});
}

void KeptResponses::attach(const Open& open, const Reader& reader) const {
  auto renderer = std::make_shared<ResumedRenderer>(renderer_of(*open.call, open.admission.reading), reader.after);
  open.admission.stream->attach({.exchange = reader.exchange,
                                 .renderer = std::move(renderer),
                                 .correlation_id = reader.correlation_id,
                                 .account = reader.account},
                                context_.clock->now().mono_ms);
}

KeptResponses::OpenPtr KeptResponses::find_open(const std::string& id) const {
  const auto it = open_.find(id);
  return it == open_.end() ? nullptr : it->second;
}

base::Result<> KeptResponses::check_owner(const net::http::Principal& caller, const std::string& id) const {
  if (deferred::find_owned(context_, kKind, id, caller) != nullptr) return {};
  return base::fail(ErrorCode::kNotFound,
                    "no response is kept under this id: only those with background or store are, until "
                    "orchestratord.files.responses_retention_ms after their end");
}

std::optional<std::string> KeptResponses::find(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string& id = request.path_param("id");
  auto owned = check_owner(request.peer.principal, id);
  if (owned) return id;
  refuse(context_, exchange, std::move(owned).error());
  return std::nullopt;
}

base::Result<std::string> KeptResponses::continued_body(const net::Request& request,
                                                        const std::string& previous_id) const {
  TRY(check_owner(request.peer.principal, previous_id));
  if (find_open(previous_id) != nullptr) {
    return base::fail(ErrorCode::kConflict, "this response has not ended; wait until it has");
  }
  return continued(request.body, TRY(context_.blobs->read(previous_id, 0, kReadBytesMax)));
}

void KeptResponses::continue_from(const std::string& previous_id, net::Request request,
                                  const net::ExchangePtr& exchange, std::function<void(net::Request)> done) {
  const auto go_on = [this, previous_id, request = std::move(request), exchange, done = std::move(done)]() mutable {
    auto body = continued_body(request, previous_id);
    if (!body) return refuse(context_, exchange, of_previous_response(std::move(body).error()));
    request.body = *std::move(body);
    done(std::move(request));
  };
  context_.files->post(go_on);
}

base::Result<> KeptResponses::insert_items(const net::http::Principal& caller, ReferringRequest& referring) const {
  const auto bytes_max = static_cast<std::size_t>(context_.config->orchestratord.limits.prompt_bytes_max);
  TRY(check_referred(caller, referring));
  for (const auto& [response_id, references] : referring.references()) {
    if (!check_owner(caller, response_id)) {
      TRY(referring.leave_out(references));
      continue;
    }
    const std::string kept = TRY(context_.blobs->read(response_id, 0, kReadBytesMax));
    TRY(referring.insert(response_id, kept, references, bytes_max));
  }
  return {};
}

base::Result<> KeptResponses::check_referred(const net::http::Principal& caller,
                                             const ReferringRequest& referring) const {
  const std::int64_t bytes_max = kReferredRequestsMax * context_.config->orchestratord.limits.request_bytes_max;
  std::uint64_t bytes = 0;
  for (const auto& [response_id, references] : referring.references()) {
    if (!check_owner(caller, response_id)) continue;  // nothing of it is read
    if (find_open(response_id) != nullptr) {
      return base::fail(
          Error{ErrorCode::kConflict, "the response of this item has not ended; wait until it has", {}}.with(
              "field", std::string("input")));
    }
    bytes += context_.blobs->find(response_id)->content_bytes;
  }
  if (std::cmp_less_equal(bytes, bytes_max)) return {};
  return chat::refused(
      "input", "length",
      fmt::format(
          "the responses whose items input names have {} bytes together; up to {} are read for a request, so send "
          "the items themselves, or previous_response_id",
          bytes, bytes_max));
}

void KeptResponses::insert_items(ReferringRequest referring, net::Request request, const net::ExchangePtr& exchange,
                                 std::function<void(net::Request)> done) {
  const auto go_on = [this, referring = std::move(referring), request = std::move(request), exchange,
                      done = std::move(done)]() mutable {
    auto inserted = insert_items(request.peer.principal, referring);
    if (!inserted) return refuse(context_, exchange, std::move(inserted).error());
    request.body = referring.body();
    done(std::move(request));
  };
  context_.files->post(go_on);
}

void KeptResponses::input_items(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto id = find(request, exchange);
  if (!id) return;
  std::string input;
  if (const OpenPtr open = find_open(*id); open != nullptr) {
    input = input_of(text_of(open->facts, "request"));
  } else {
    const auto kept = context_.blobs->read(*id, 0, kReadBytesMax);
    if (!kept) return refuse(context_, exchange, kept.error());
    input = input_kept(*kept);
  }
  const std::vector<ListedItem> items = listed_items(*id, input);
  std::vector<std::string> ids;
  for (const ListedItem& item : items) ids.push_back(item.id);
  auto page = deferred::list_page(request, {}, ids, [&](std::size_t index) { return items[index].json; });
  if (!page) return refuse(context_, exchange, page.error());
  exchange->respond(net::http::json_response(200, *std::move(page)));
}

void KeptResponses::show(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto after = starting_after(request);
  if (!after) return refuse(context_, exchange, after.error());
  const auto id = find(request, exchange);
  if (!id) return;
  const bool stream = request.query_param("stream").value_or("false") == "true";
  const Reader reader{exchange, *after, request.correlation_id, request.peer.principal.account};
  const OpenPtr open = find_open(*id);
  if (open == nullptr) return serve_kept(*id, reader, stream);
  if (!stream) return answer_unfinished(open, exchange);
  if (open->job_id) return attach(*open, reader);
  open->readers.push_back(reader);
}

void KeptResponses::answer_unfinished(const OpenPtr& open, const net::ExchangePtr& exchange) {
  const auto respond = [open, exchange](std::string_view status) {
    exchange->respond(net::http::json_response(200, renderer_of(*open->call, nullptr)->unfinished(status)));
  };
  if (!open->job_id) return respond("queued");
  context_.core->ask<core::AnswerQueryJob>(
      core::QueryJob{.request = {}, .job_id = *open->job_id}, [respond](const core::AnswerQueryJob& answer) {
        const bool waits = answer.job && answer.job->status == wire::JobStatus::kQueued;
        respond(waits ? "queued" : "in_progress");
      });
}

void KeptResponses::serve_kept(const std::string& id, const Reader& reader, bool stream) {
  const auto events = context_.blobs->read(id, 0, kReadBytesMax);
  if (!events) return refuse(context_, reader.exchange, events.error());
  if (!stream) {
    auto response = last_response(*events);
    if (!response) return refuse(context_, reader.exchange, response.error());
    return void(reader.exchange->respond(net::http::json_response(200, *std::move(response))));
  }
  std::string out;
  append_events(*events, {.after = reader.after, .comments = false}, out);
  reader.exchange->respond({200, net::http::sse_headers(), std::move(out)});
}

// Before the job ends: a process that comes later does not run it once more. In place of what is there, for the request is among its
// facts: a cancel takes no room. What has its output ends with that.
base::Result<> KeptResponses::keep_cancelled(Open& open) {
  const store::blobs::Blob& blob = *context_.blobs->find(open.id);
  if (blob.content_bytes > 0) return {};
  store::blobs::Facts facts = blob.facts;
  open.facts["cancelled"] = true;
  facts.body = json::serialize(open.facts);
  TRY(context_.blobs->replace(open.id, std::move(facts), {}));
  return {};
}

void KeptResponses::cancel(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto id = find(request, exchange);
  if (!id) return;
  const OpenPtr open = find_open(*id);
  if (open == nullptr) return serve_kept(*id, {exchange}, false);
  if (!open->cancelled) {
    if (auto kept = keep_cancelled(*open); !kept) return refuse(context_, exchange, std::move(kept).error());
    open->cancelled = true;
  }
  open->waiting.push_back(exchange);
  end_job(*open);
}

void KeptResponses::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto id = find(request, exchange);
  if (!id) return;
  auto erased = context_.blobs->erase(*id);
  // Also where the disk did not take it: the blob is not found any more.
  if (const OpenPtr open = find_open(*id); open != nullptr) drop(open);
  if (!erased) return refuse(context_, exchange, std::move(erased).error());
  const json::object deleted{{"id", *id}, {"object", "response"}, {"deleted", true}};
  exchange->respond(net::http::json_response(200, json::serialize(deleted)));
}

// As a response whose request holds nothing, for nobody can say what this one holds. What has its output ends with that.
void KeptResponses::end_unreadable(const store::blobs::Blob& blob) {
  Call call = decoder_of("/v1/responses")(R"({"model":"m","input":"i","background":true})").value();
  const json::object request = object_of(text_of(object_of(blob.facts.body), "request"));
  std::get<AnswerOptions>(call.answer).model = text_of(request, "model");
  auto open = std::make_shared<Open>();
  open->id = blob.id;
  open->call = std::make_shared<const DeferredCall>(
      DeferredCall{.call = kept_call(std::move(call)),
                   .caller = {},
                   .task_id = {},
                   .identity = {.job_id = base::JobId(blob.id.substr(kIdPrefix.size())),
                                .correlation_id = base::CorrelationId(base::uuid_v4(*context_.entropy)),
                                .created_unix_s = blob.facts.created_unix_ms / 1000}});
  open_.emplace(open->id, open);
  keep(open, events_of(*open->call,
                       Error{ErrorCode::kUnsupportedFormatVersion,
                             "another version of orchestratord kept the request of this response, and this one cannot "
                             "read it; delete the response, and ask again",
                             {}}));
}

void KeptResponses::resume() {
  for (const store::blobs::Blob* blob : context_.blobs->list(kKind)) {
    if (blob->facts.expires_unix_ms) continue;
    json::object facts = object_of(blob->facts.body);
    const auto caller = caller_from(facts.if_contains("caller"));
    auto call = decoder_of("/v1/responses")(text_of(facts, "request"));
    std::uint64_t seed = 0;
    const std::string seed_text = text_of(facts, "seed");
    std::from_chars(seed_text.data(), seed_text.data() + seed_text.size(), seed);
    if (!caller || !call) {
      base::log_event(base::LogLevel::kError, "response.unreadable", {},
                      "A kept request of another version cannot be read; its response has failed.");
      end_unreadable(*blob);
      continue;
    }
    call->submission.seed = seed;
    const std::string task_id = text_of(facts, "task_id");
    auto open = std::make_shared<Open>();
    open->id = blob->id;
    open->asked_unix_ms = blob->facts.created_unix_ms;
    open->cancelled = flag_of(facts, "cancelled");
    open->facts = std::move(facts);
    open->call = std::make_shared<const DeferredCall>(
        DeferredCall{.call = kept_call(*std::move(call)),
                     .caller = *caller,
                     .task_id = task_id,
                     .identity = {.job_id = job_id_of_task(*caller, task_id),
                                  .correlation_id = base::CorrelationId(base::uuid_v4(*context_.entropy)),
                                  .created_unix_s = blob->facts.created_unix_ms / 1000}});
    open_.emplace(open->id, open);
    if (const std::string& id = answer_of(open->call->call).conversation.id; !id.empty()) {
      conversations_.resume_turn(id, open->id);
    }
    if (blob->content_bytes > 0 || open->cancelled) {
      keep(open, events_of(*open->call, Error{ErrorCode::kCancelled, "the response was cancelled", {}}));
    } else {
      run(open);
    }
  }
}

}  // namespace llorch::orchestratord::http::openai
