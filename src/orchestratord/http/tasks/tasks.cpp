#include "orchestratord/http/tasks/tasks.h"

#include <fmt/core.h>

#include <charconv>

#include "orchestratord/http/sessions.h"
#include "orchestratord/http/tasks/job_view.h"
#include "orchestratord/http/tenancy.h"
#include "orchestratord/streams/log/sse_renderer.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::int64_t kListDefault = 50;
constexpr std::int64_t kListMax = 1000;

Error not_found(const base::JobId& job_id) {
  return Error{
      ErrorCode::kJobNotFound,
      "no job has this id: it never was, or it ended so long ago that its record is gone (persistence.retention_*)",
      {}}
      .with("job_id", job_id.value);
}

// Ids are checked before they are looked up or repeated in an answer.
base::Result<base::JobId> job_id_of(const net::Request& request) {
  const std::string& text = request.path_param("id");
  if (base::is_valid_identifier(text)) return base::JobId(text);
  return base::fail(ErrorCode::kJobNotFound,
                    "no job has this id: job ids are 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
}

base::Result<std::int64_t> limit_of(const net::Request& request) {
  const auto text = request.query_param("limit");
  if (!text) return kListDefault;
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (ec != std::errc() || end != text->data() + text->size() || value < 1 || value > kListMax) {
    return base::fail(Error{ErrorCode::kInvalidParams, fmt::format("limit must be between 1 and {}", kListMax), {}}
                          .with("field", "limit")
                          .with("reason", "range"));
  }
  return value;
}

Error unknown_before() {
  return Error{ErrorCode::kInvalidParams,
               "before must be next_before of an earlier page; that job is unknown, or its record is gone "
               "(persistence.retention_*): begin again without it",
               {}}
      .with("field", "before")
      .with("reason", "unknown");
}

// With the ids that the caller knows it by.
wire::JobView shown_view(const net::http::Principal& caller, const store::JobRecord& record,
                         const std::optional<LiveDetails>& live) {
  wire::JobView view = job_view(record, live);
  view.task_id = shown_id(caller, view.task_id);
  if (view.session_id) view.session_id = shown_id(caller, *view.session_id);
  return view;
}

std::string last_event_id_of(const streams::StreamPtr& stream) {
  return stream == nullptr ? std::string() : streams::to_string(stream->progress().id);
}

}  // namespace

// The live job, if it is one and the caller's.
LiveJobPtr Tasks::find_live(const Asked& asked) const {
  const LiveJobPtr live = context_.jobs->find(asked.job_id);
  return live != nullptr && owns(asked.caller, live->record.tenant_id) ? live : nullptr;
}

// A job of somebody else is looked up like one that never was, and refused with the same words.
void Tasks::find_stored(const Asked& asked, std::function<void(const store::JobRecord&)> then) {
  context_.store->find(asked.job_id,
                       [this, asked, then = std::move(then)](base::Result<std::optional<store::JobRecord>> found) {
                         if (!found) return refuse(context_, asked.exchange, std::move(found).error());
                         const bool is_there = *found && owns(asked.caller, (*found)->tenant_id);
                         if (!is_there) return refuse(context_, asked.exchange, not_found(asked.job_id));
                         then(**found);
                       });
}

void Tasks::show(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto job_id = job_id_of(request);
  if (!job_id) return refuse(context_, exchange, job_id.error());
  const Asked asked{*job_id, request.peer.principal, exchange};
  context_.core->ask<core::AnswerQueryJob>(
      core::QueryJob{.request = {}, .job_id = *job_id}, [this, asked](core::AnswerQueryJob answer) {
        // An ending that is not committed yet is nobody's to see, and the store knows it with its receipt once it is.
        const bool running = answer.job && !wire::is_terminal(answer.job->status);
        const LiveJobPtr live = running ? find_live(asked) : nullptr;
        if (live == nullptr) return show_stored(asked, answer.job ? std::move(answer.job->reason) : std::nullopt);
        const auto view =
            shown_view(asked.caller, live->record, LiveDetails{std::move(*answer.job), last_event_id_of(live->stream)});
        asked.exchange->respond(net::http::json_response(200, wire::encode(view)));
      });
}

void Tasks::show_stored(const Asked& asked, std::optional<wire::WaitReason> reason) {
  find_stored(asked, [asked, reason = std::move(reason)](const store::JobRecord& record) {
    wire::JobView view = shown_view(asked.caller, record, std::nullopt);
    if (!wire::is_terminal(view.status)) view.reason = reason;
    asked.exchange->respond(net::http::json_response(200, wire::encode(view)));
  });
}

// A page begins behind a job, and says nothing of how many others there are between two of the caller's.
void Tasks::list(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto limit = limit_of(request);
  if (!limit) return refuse(context_, exchange, limit.error());
  const net::http::Principal& caller = request.peer.principal;
  store::Listing listing{.count_max = *limit};
  if (caller.role != net::http::Role::kOperator) listing.tenant_id = caller.account;
  const auto before = request.query_param("before");
  if (!before) return list_page(caller, std::move(listing), exchange);
  if (!base::is_valid_identifier(*before)) return refuse(context_, exchange, unknown_before());
  context_.store->find(base::JobId(std::string(*before)),
                       [this, caller, listing = std::move(listing),
                        exchange](base::Result<std::optional<store::JobRecord>> found) mutable {
                         if (!found) return refuse(context_, exchange, std::move(found).error());
                         const bool is_there = *found && owns(caller, (*found)->tenant_id);
                         if (!is_there) return refuse(context_, exchange, unknown_before());
                         listing.before = (*found)->arrival;
                         list_page(caller, std::move(listing), exchange);
                       });
}

// The store reads and the desk writes: neither commits nor sockets wait for a long list.
void Tasks::list_page(const net::http::Principal& caller, store::Listing listing, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryJobs>(core::QueryJobs{}, [this, listing = std::move(listing), caller,
                                                                exchange](core::AnswerQueryJobs answer) {
    LiveJobs live;
    for (core::LiveJob& job : answer.jobs) live.emplace(job.job_id, std::move(job));
    context_.store->list(listing, [this, caller, count_max = listing.count_max, live = std::move(live),
                                   exchange](base::Result<std::vector<store::JobRecord>> records) mutable {
      if (!records) return refuse(context_, exchange, std::move(records).error());
      context_.desk->post([this, caller, count_max, live = std::move(live), exchange, records = *std::move(records)] {
        wire::JobList list = views_of(caller, live, records);
        if (static_cast<std::int64_t>(records.size()) == count_max) list.next_before = records.back().job_id.value;
        exchange->respond(net::http::json_response(200, wire::encode(list)));
      });
    });
  });
}

wire::JobList Tasks::views_of(const net::http::Principal& caller, const LiveJobs& live,
                              const std::vector<store::JobRecord>& records) const {
  wire::JobList out;
  for (const store::JobRecord& record : records) {
    const auto it = live.find(record.job_id);
    // A job that is ending, or ended since the core was asked, is shown as its row has it.
    const bool use_live =
        it != live.end() && !wire::is_terminal(record.progress.status) && !wire::is_terminal(it->second.status);
    out.tasks.push_back(shown_view(
        caller, record,
        use_live ? std::optional(LiveDetails{it->second, last_event_id_of(context_.hub->find(record.job_id))})
                 : std::nullopt));
    if (it != live.end() && !wire::is_terminal(record.progress.status)) {
      out.tasks.back().reason = it->second.reason;
    }
  }
  return out;
}

void Tasks::events(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto job_id = job_id_of(request);
  if (!job_id) return refuse(context_, exchange, job_id.error());
  std::optional<streams::EventId> last_event_id;
  if (const auto header = request.headers.get("Last-Event-ID"); header && !header->empty()) {
    auto parsed = streams::parse_event_id(*header);
    if (!parsed) return refuse(context_, exchange, std::move(parsed).error());
    last_event_id = *parsed;
  }
  const Asked asked{*job_id, request.peer.principal, exchange};
  const streams::StreamPtr stream = context_.hub->find(*job_id);
  if (stream != nullptr && owns(asked.caller, stream->identity().tenant_id)) {
    if (request.method == "HEAD") return void(exchange->respond({200, net::http::sse_headers(), {}}));  // reads nothing
    const LiveJobPtr live = context_.jobs->find(*job_id);
    if (live != nullptr && live->record.session_id) {
      return attach_with_budget(base::SessionId(*live->record.session_id), stream,
                                {.exchange = exchange,
                                 .renderer = std::make_shared<streams::SseRenderer>(),
                                 .last_event_id = last_event_id,
                                 .correlation_id = request.correlation_id});
    }
    return stream->attach(
        {.exchange = exchange,
         .renderer = std::make_shared<streams::SseRenderer>(),
         .last_event_id = last_event_id,
         .correlation_id = request.correlation_id},
        context_.clock->now().mono_ms);
  }
  find_stored(asked, [this, last_event_id, exchange](const store::JobRecord& record) {
    serve_stored_events(record, last_event_id, exchange);
  });
}

void Tasks::attach_with_budget(base::SessionId session_id, const streams::StreamPtr& stream,
                               streams::Stream::Reader reader) {
  context_.core->ask<core::AnswerSession>(
      core::QuerySession{.request = {}, .session_id = std::move(session_id)},
      [this, stream, reader = std::move(reader)](const core::AnswerSession& answer) mutable {
        if (answer.result) add_budget_headers(answer.result->remaining, reader.headers);
        stream->attach(reader, context_.clock->now().mono_ms);
      });
}

void Tasks::serve_stored_events(const store::JobRecord& record, const std::optional<streams::EventId>& last_event_id,
                                const net::ExchangePtr& exchange) {
  const auto& progress = record.progress;
  const auto id = streams::parse_event_id(progress.last_event_id.value_or(""));
  if (!wire::is_terminal(progress.status) || !id) {
    return refuse(context_, exchange,
                  Error{ErrorCode::kInternal, "the job's stream is missing; report this as a bug", {}});
  }
  const auto answer = streams::answer_from_store({*id}, last_event_id);
  if (answer == streams::StoredAnswer::kOffsetGone) {
    return refuse(
        context_, exchange,
        Error{ErrorCode::kStreamOffsetGone,
              "the job has ended and the events after this id are not held any more: tokens are kept in memory only, "
              "for stream.retain_ms, or for stream.reconnect_grace_ms once a client was sent them all. Ask without "
              "Last-Event-ID for the terminal event, or submit the job again with its seed",
              {}}
            .with("last_event_id", *progress.last_event_id)
            .with("seed", std::to_string(record.seed)));
  }
  exchange->start_stream(200, net::http::sse_headers());
  if (answer == streams::StoredAnswer::kTerminalEvent) {
    streams::SseRenderer renderer;
    std::string bytes;
    streams::render(terminal_event(progress), *id, renderer, bytes);
    exchange->write(bytes);
  }
  exchange->end();
}

void Tasks::cancel(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto job_id = job_id_of(request);
  if (!job_id) return refuse(context_, exchange, job_id.error());
  const Asked asked{*job_id, request.peer.principal, exchange};
  // What is in the core is live here as well.
  if (find_live(asked) == nullptr) return answer_cancel(asked, {.request = {}, .job_id = *job_id, .status = {}});
  context_.core->ask<core::AnswerCancel>(
      core::CancelRequested{.request = {}, .job_id = *job_id, .reason = core::jobs::CancelReason::kClientRequest},
      [this, asked](const core::AnswerCancel& answer) { answer_cancel(asked, answer); });
}

void Tasks::answer_cancel(const Asked& asked, const core::AnswerCancel& answer) {
  const auto respond = [asked](int status, std::string_view state) {
    const wire::CancelReply reply{.job_id = asked.job_id.value, .status = std::string(state)};
    asked.exchange->respond(net::http::json_response(status, wire::encode(reply)));
  };
  if (!answer.status) {
    return find_stored(
        asked, [respond](const store::JobRecord& record) { respond(200, wire::enum_name(record.progress.status)); });
  }
  if (*answer.status == wire::JobStatus::kRunning) return respond(202, "cancelling");
  respond(*answer.status == wire::JobStatus::kCancelled ? 202 : 200, wire::enum_name(*answer.status));
}

}  // namespace llorch::orchestratord::http::tasks
