#include "orchestratord/http/tasks/tasks.h"

#include <fmt/core.h>

#include <charconv>

#include "orchestratord/http/sessions.h"
#include "orchestratord/http/tasks/job_view.h"
#include "orchestratord/http/tasks/result_renderer.h"
#include "orchestratord/http/tenancy.h"
#include "orchestratord/streams/replay/offset_gone.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::int64_t kListDefault = 50;
constexpr std::int64_t kListMax = 1000;
constexpr std::int64_t kWaitLookMs = 1000;

Error not_found(const base::JobId& job_id) {
  return Error{
      ErrorCode::kJobNotFound,
      "no job has this id: it never was, or it ended so long ago that its record is gone (persistence.retention_*)",
      {}}
      .with("job_id", job_id.value);
}

tl::unexpected<Error> bad_parameter(std::string field, std::string reason, std::string message) {
  return base::fail(Error{ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::move(field))
                        .with("reason", std::move(reason)));
}

base::Result<bool> is_true(const std::string& name, std::string_view value) {
  if (value != "true" && value != "false") return bad_parameter(name, "type", name + " is true or false");
  return value == "true";
}

// What a submission is answered with: its stream, its result, or else the 202 of an accepted job.
struct AnswerWanted {
  bool stream = false, wait = false, verbose = false;
};
base::Result<AnswerWanted> answer_wanted(const net::Request& request) {
  AnswerWanted out;
  for (const auto& [name, value] : request.query_params) {
    if (name != "stream" && name != "wait" && name != "verbose") {
      return bad_parameter("query", "unknown", "the query parameters of a submission are stream, wait and verbose");
    }
    (name == "stream" ? out.stream : name == "wait" ? out.wait : out.verbose) = TRY(is_true(name, value));
  }
  if (out.stream && out.wait) {
    return bad_parameter("wait", "combination",
                         "stream=true answers with the stream and wait=true with the result; ask for one");
  }
  if (out.verbose && !out.stream) return bad_parameter("verbose", "combination", "verbose=true is of stream=true");
  return out;
}

base::Result<std::optional<streams::EventId>> last_event_id_header(const net::Request& request) {
  const auto header = request.headers.get("Last-Event-ID");
  if (!header || header->empty()) return std::nullopt;
  return TRY(streams::parse_event_id(*header));
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
    return bad_parameter("limit", "range", fmt::format("limit must be between 1 and {}", kListMax));
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
  view.tenant_id = shown_tenant(caller, record.tenant_id);
  return view;
}

std::string last_event_id_of(const streams::StreamPtr& stream) {
  return stream == nullptr ? std::string() : streams::to_string(stream->progress().id);
}

bool is_live(const Tasks::Wanted& wanted) {
  return wanted.stream != nullptr && owns(wanted.caller, wanted.stream->identity().tenant_id);
}

// Answers with the terminal event alone. A renderer that needs the tokens for it gets none.
void serve_stored(const store::JobRecord& record, const streams::Stream::Reader& reader,
                  const Tasks::Refused& refused) {
  const auto& progress = record.progress;
  const auto id = streams::parse_event_id(progress.last_event_id.value_or(""));
  if (!wire::is_terminal(progress.status) || !id) {
    return refused(Error{ErrorCode::kInternal, "the job's stream is missing; report this as a bug", {}});
  }
  streams::Renderer& renderer = *reader.renderer;
  const auto answer = streams::answer_from_store({*id}, reader.last_event_id);
  const bool lacks_tokens = !renderer.stateless() && progress.end && progress.end->tokens_out > 0;
  if (answer == streams::StoredAnswer::kOffsetGone || lacks_tokens) {
    return refused(streams::offset_gone(streams::to_string(*id), record.seed));
  }
  std::string bytes;
  if (answer == streams::StoredAnswer::kTerminalEvent) {
    streams::render(terminal_event(progress), *id, renderer, bytes);
  }
  streams::Renderer::Head head = renderer.head();
  if (renderer.streams() && answer == streams::StoredAnswer::kNothing) {
    return void(reader.exchange->respond({streams::kNothingLeft, {}, {}}));
  }
  if (!renderer.streams()) {
    reader.exchange->respond({head.status, std::move(head.headers), std::move(bytes)});
    return;
  }
  reader.exchange->start_stream(head.status, std::move(head.headers));
  reader.exchange->write(bytes);
  reader.exchange->end();
}

}  // namespace

void Tasks::submit(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto wanted = answer_wanted(request);
  if (!wanted) return refuse(context_, exchange, wanted.error());
  base::Result<std::optional<streams::EventId>> last_event_id = std::nullopt;
  if (wanted->stream) last_event_id = last_event_id_header(request);
  if (!last_event_id) return refuse(context_, exchange, last_event_id.error());
  auto body = decode_request(request.body);
  if (!body) return refuse(context_, exchange, std::move(body).error());
  if (const auto named = take_idempotency_key(request.headers, *body); !named) {
    return refuse(context_, exchange, named.error());
  }
  const wire::Workload workload = body->workload.value_or(wire::Workload::kCompletion);
  Submission submission{*std::move(body), request.peer.principal, request.correlation_id};
  streams::Stream::Reader reader{.exchange = exchange,
                                 .renderer = nullptr,
                                 .last_event_id = *last_event_id,
                                 .correlation_id = request.correlation_id};
  auto done = [this, wanted = *wanted, workload, caller = request.peer.principal,
               reader = std::move(reader)](base::Result<Admission> admission) mutable {
    if (!admission) return refuse(context_, reader.exchange, std::move(admission).error());
    const wire::SubmitReply& reply = admission->reply;
    if (!wanted.stream && !wanted.wait) {
      net::Response response = net::http::json_response(202, wire::encode(reply));
      add_budget_headers(reply.budget, response.headers);
      return void(reader.exchange->respond(std::move(response)));
    }
    if (wanted.stream) {
      reader.renderer = std::make_shared<streams::SseRenderer>();
    } else {
      reader.renderer = std::make_shared<ResultRenderer>(reply.job_id, reply.task_id, workload);
    }
    Refused refused = refusing(reader.exchange);
    serve({.job_id = base::JobId(reply.job_id),
           .stream = std::move(admission->stream),
           .caller = std::move(caller),
           .verbose = wanted.verbose,
           .counted = true},
          std::move(reader), std::move(refused));
  };
  if (submission.request.result) return kept_results_.submit(std::move(submission), std::move(done));
  submitter_.submit(std::move(submission), std::move(done));
}

void Tasks::preview(const net::Request& request, const net::ExchangePtr& exchange) {
  auto body = decode_request(request.body);
  if (!body) return refuse(context_, exchange, std::move(body).error());
  submitter_.preview({*std::move(body), request.peer.principal, request.correlation_id},
                     [this, exchange](base::Result<wire::JobPreview> preview) {
                       if (!preview) return refuse(context_, exchange, std::move(preview).error());
                       exchange->respond(net::http::json_response(200, wire::encode(*preview)));
                     });
}

Tasks::Refused Tasks::refusing(const net::ExchangePtr& exchange) const {
  return [this, exchange](Error error) { refuse(context_, exchange, std::move(error)); };
}

// The live job, if it is one and the caller's.
LiveJobPtr Tasks::find_live(const Asked& asked) const {
  const LiveJobPtr live = context_.jobs->find(asked.job_id);
  return live != nullptr && owns(asked.caller, live->record.tenant_id) ? live : nullptr;
}

// A job of somebody else is looked up like one that never was, and refused with the same words.
void Tasks::find_stored(const base::JobId& job_id, const net::http::Principal& caller,
                        std::function<void(const store::JobRecord&)> then, Refused refused) {
  context_.store->find(job_id, [job_id, caller, then = std::move(then),
                                refused = std::move(refused)](base::Result<std::optional<store::JobRecord>> found) {
    if (!found) return refused(std::move(found).error());
    const bool is_there = *found && owns(caller, (*found)->tenant_id);
    if (!is_there) return refused(not_found(job_id));
    then(**found);
  });
}

void Tasks::find_counted(const base::JobId& job_id, const net::http::Principal& caller,
                         std::function<void(const store::JobRecord&)> then, Refused refused) {
  if (!context_.live_config->limits_rates()) return find_stored(job_id, caller, std::move(then), std::move(refused));
  core::CountArrival arrival{.request = {}, .tenant_id = caller.account};
  context_.core->ask<core::AnswerArrival>(
      std::move(arrival),
      [this, job_id, caller, then = std::move(then), refused = std::move(refused)](core::AnswerArrival answer) mutable {
        if (answer.refusal) return refused(*std::move(answer.refusal));
        find_stored(job_id, caller, std::move(then), std::move(refused));
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
  const auto then = [asked, reason = std::move(reason)](const store::JobRecord& record) {
    wire::JobView view = shown_view(asked.caller, record, std::nullopt);
    if (!wire::is_terminal(view.status)) view.reason = reason;
    asked.exchange->respond(net::http::json_response(200, wire::encode(view)));
  };
  find_counted(asked.job_id, asked.caller, then, refusing(asked.exchange));
}

// A page begins behind a job, and says nothing of how many others there are between two of the caller's.
void Tasks::list(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto limit = limit_of(request);
  if (!limit) return refuse(context_, exchange, limit.error());
  const net::http::Principal& caller = request.peer.principal;
  const auto only_live = is_true("live", request.query_param("live").value_or("false"));
  if (!only_live) return refuse(context_, exchange, only_live.error());
  store::Listing listing{.count_max = *limit, .only_live = *only_live};
  auto account = listed_account(caller, request.query_param("tenant"));
  if (!account) return refuse(context_, exchange, account.error());
  listing.tenant_id = *std::move(account);
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

// The store reads and the request executor writes: neither commits nor sockets wait for a long list.
void Tasks::list_page(const net::http::Principal& caller, store::Listing listing, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryJobs>(
      core::QueryJobs{}, [this, listing = std::move(listing), caller, exchange](core::AnswerQueryJobs answer) {
        LiveJobs live;
        for (core::LiveJob& job : answer.jobs) live.emplace(job.job_id, std::move(job));
        context_.store->list(listing, [this, caller, count_max = listing.count_max, live = std::move(live),
                                       exchange](base::Result<std::vector<store::JobRecord>> records) mutable {
          if (!records) return refuse(context_, exchange, std::move(records).error());
          context_.request_executor->post(
              [this, caller, count_max, live = std::move(live), exchange, records = *std::move(records)] {
                wire::JobList list = views_of(caller, live, records);
                if (static_cast<std::int64_t>(records.size()) == count_max)
                  list.next_before = records.back().job_id.value;
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
  const auto last_event_id = last_event_id_header(request);
  if (!last_event_id) return refuse(context_, exchange, last_event_id.error());
  const auto verbose = is_true("verbose", request.query_param("verbose").value_or("false"));
  if (!verbose) return refuse(context_, exchange, verbose.error());
  const auto observes = is_true("observe", request.query_param("observe").value_or("false"));
  if (!observes) return refuse(context_, exchange, observes.error());
  serve({.job_id = *job_id,
         .stream = context_.hub->find(*job_id),
         .caller = request.peer.principal,
         .verbose = *verbose,
         .is_head = request.method == "HEAD"},
        {.exchange = exchange,
         .renderer = std::make_shared<streams::SseRenderer>(),
         .last_event_id = *last_event_id,
         .correlation_id = request.correlation_id,
         .observes = *observes},
        refusing(exchange));
}

void Tasks::serve(const Wanted& wanted, streams::Stream::Reader reader, Refused refused) {
  if (!is_live(wanted)) {
    const auto then = [reader = std::move(reader), refused](const store::JobRecord& record) {
      serve_stored(record, reader, refused);
    };
    if (wanted.counted) return find_stored(wanted.job_id, wanted.caller, then, refused);
    return find_counted(wanted.job_id, wanted.caller, then, refused);
  }
  if (wanted.is_head) return void(reader.exchange->respond({200, net::http::sse_headers(), {}}));  // reads nothing
  reader.account = wanted.caller.account;
  reader.verbose = wanted.verbose;
  const LiveJobPtr live = context_.jobs->find(wanted.job_id);
  if (live != nullptr && live->record.session_id) {
    return attach_with_budget(base::SessionId(*live->record.session_id), wanted.stream, std::move(reader));
  }
  attach(wanted.stream, reader);
}

void Tasks::attach(const streams::StreamPtr& stream, const streams::Stream::Reader& reader) {
  stream->attach(reader, context_.clock->now().mono_ms);
  if (reader.verbose && stream->begin_telling()) tell_wait(stream, std::nullopt);
}

void Tasks::tell_wait(const streams::StreamPtr& stream, std::optional<wire::WaitReason> told) {
  const auto then = [this, stream, told = std::move(told)](core::AnswerQueryJob answer) mutable {
    if (!answer.job || wire::is_terminal(answer.job->status) || *context_.stopping) return stream->end_telling();
    auto& reason = answer.job->reason;
    const bool is_new =
        reason && (!told || std::tie(told->code, told->load_percent) != std::tie(reason->code, reason->load_percent));
    if (is_new) {
      const wire::MetricsEvent event{
          .phase = reason->code, .human = reason->human, .load_percent = reason->load_percent};
      stream->metrics(event, context_.clock->now().mono_ms);
    }
    context_.request_executor->post_after(kWaitLookMs, [this, stream, reason = std::move(reason)]() mutable {
      if (stream->wants_telling()) tell_wait(stream, std::move(reason));
    });
  };
  context_.core->ask<core::AnswerQueryJob>(core::QueryJob{.request = {}, .job_id = stream->identity().job_id}, then);
}

void Tasks::attach_with_budget(base::SessionId session_id, const streams::StreamPtr& stream,
                               streams::Stream::Reader reader) {
  context_.core->ask<core::AnswerSession>(
      core::QuerySession{.request = {}, .session_id = std::move(session_id)},
      [this, stream, reader = std::move(reader)](const core::AnswerSession& answer) mutable {
        if (answer.result) add_budget_headers(answer.result->remaining, reader.headers);
        attach(stream, reader);
      });
}

void Tasks::with_task(const net::Request& request, const net::ExchangePtr& exchange,
                      std::function<void(const std::string& task_id)> then) {
  const auto job_id = job_id_of(request);
  if (!job_id) return refuse(context_, exchange, job_id.error());
  find_stored(
      *job_id, request.peer.principal,
      [this, then = std::move(then)](const store::JobRecord& record) {
        context_.files->post([then, task_id = record.task_id] { then(task_id); });
      },
      refusing(exchange));
}

void Tasks::result(const net::Request& request, const net::ExchangePtr& exchange) {
  with_task(request, exchange,
            [this, exchange](const std::string& task_id) { kept_results_.answer(task_id, exchange); });
}

void Tasks::remove_result(const net::Request& request, const net::ExchangePtr& exchange) {
  with_task(request, exchange, [this, exchange](const std::string& task_id) {
    if (auto erased = kept_results_.erase(task_id); !erased) {
      return refuse(context_, exchange, std::move(erased).error());
    }
    exchange->respond({204, {}, {}});
  });
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

void Tasks::cancel(const base::JobId& job_id, const net::http::Principal& caller,
                   std::function<void(base::Result<>)> done) {
  if (find_live({job_id, caller, nullptr}) == nullptr) {
    return find_counted(
        job_id, caller, [done](const store::JobRecord&) { done({}); },
        [done](Error error) { done(base::fail(std::move(error))); });
  }
  context_.core->ask<core::AnswerCancel>(
      core::CancelRequested{.request = {}, .job_id = job_id, .reason = core::jobs::CancelReason::kClientRequest},
      [done = std::move(done)](const core::AnswerCancel&) { done({}); });
}

void Tasks::answer_cancel(const Asked& asked, const core::AnswerCancel& answer) {
  const auto respond = [asked](int status, std::string_view state) {
    const wire::CancelReply reply{.job_id = asked.job_id.value, .status = std::string(state)};
    asked.exchange->respond(net::http::json_response(status, wire::encode(reply)));
  };
  if (!answer.status) {
    const auto then = [respond](const store::JobRecord& record) {
      respond(200, wire::enum_name(record.progress.status));
    };
    return find_counted(asked.job_id, asked.caller, then, refusing(asked.exchange));
  }
  if (*answer.status == wire::JobStatus::kRunning) return respond(202, "cancelling");
  respond(*answer.status == wire::JobStatus::kCancelled ? 202 : 200, wire::enum_name(*answer.status));
}

}  // namespace llorch::orchestratord::http::tasks
