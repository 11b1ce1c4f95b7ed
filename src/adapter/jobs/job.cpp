#include "adapter/jobs/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "wire/json.h"

namespace llorch::adapter::jobs {
namespace {

using base::Error;
using base::ErrorCode;
using base::LogLevel;

// Bytes a slow reader may leave unread before the engine's connection is not read any more.
constexpr std::size_t kQueuedBytesMax = 256 << 10;
constexpr std::size_t kRefusalBytesMax = 64 << 10;
// What an engine may still send behind the answer's end; a connection that is done by then serves the next job.
constexpr std::int64_t kTailMs = 2'000;
constexpr std::size_t kTailBytesMax = 64 << 10;
// More than any prompt has. Counts are added up by whoever reads the job's end.
constexpr std::int64_t kTokensMax = std::numeric_limits<std::int32_t>::max();

void append(std::string& out, std::string_view event, std::string_view json) {
  net::sse::append_event(out, {.event = event, .data = json});
}

// Whether another attempt may succeed, as long as nothing has come of this one.
bool may_pass(int status) { return status == 408 || status == 429 || status >= 500; }

Error lost(const Error& cause) {
  return Error{ErrorCode::kWorkerReset, "the engine was lost while the job ran: " + cause.message, {}}.with(
      "cause", std::string(cause.name()));
}

}  // namespace

Job::Job(Service& service, Order order)
    : service_(service),
      grpc_(service.options_.engine->protocol() == engines::Protocol::kGrpc),
      order_(std::move(order)),
      writer_(order_.request.max_tokens) {}

void Job::begin() {
  begun_ms_ = service_.options_.clock->now().mono_ms;
  order_.submission.headers.push_back("X-Correlation-Id: " + order_.correlation_id.value);
  const Identity& identity = service_.options_.identity;
  order_.exchange->start_stream(200, net::http::sse_headers());
  append(events_, "started",
         wire::encode(wire::StartedEvent{.job_id = job_id(),
                                         .worker_id = identity.worker_id,
                                         .model = identity.model_ref,
                                         .started_at = base::rfc3339(service_.options_.clock->now().unix_ms),
                                         .seed = order_.seed}));
  flush();
  const std::int64_t limit_ms = service_.options_.timeout_ms_max;
  const std::int64_t timeout_ms = std::min(order_.request.timeout_ms.value_or(limit_ms), limit_ms);
  timeout_ = service_.options_.client->start_timer(timeout_ms, [weak = weak_from_this(), timeout_ms] {
    if (const auto self = weak.lock()) {
      self->stop({ErrorCode::kTimeout, fmt::format("the job ran longer than {} ms", timeout_ms), {}});
    }
  });
  ask();
}

void Job::ask() {
  ++attempt_;
  head_ = {};
  refusal_.clear();
  decoder_ = net::sse::Decoder();
  frames_.reset();
  grpc_status_.reset();
  kept_back_.reset();
  stop_reason_.reset();
  tokens_in_.reset();
  tokens_counted_.reset();
  const auto self = shared_from_this();
  transfer_ = service_.options_.client->start(
      {.method = "POST",
       .url = order_.submission.url,
       .bearer = service_.options_.bearer,
       .body = grpc_ ? upstream::grpc_frame(order_.submission.body) : order_.submission.body,
       .headers = order_.submission.headers,
       .grpc = grpc_,
       .silence_ms = service_.options_.silence_ms,
       .may_send = [self] { return self->may_send(); }},
      {.on_head = [self](const upstream::Head& head) { self->on_head(head); },
       .on_data = [self](std::string_view bytes) { return self->on_data(bytes); },
       .on_grpc_status = [self](int code) { self->grpc_status_ = code; },
       .on_end = [self](const base::Result<>& result) { self->on_end(result); }});
}

bool Job::may_send() {
  const auto may = service_.options_.may_send();
  if (!may) kept_back_ = may.error();
  return may.has_value();
}

void Job::on_head(const upstream::Head& head) {
  head_ = head;
  if (head.status >= 400 && head.status < 500) service_.engine_answered();
}

void Job::when_read(void (Job::*then)()) {
  order_.exchange->on_drain(kQueuedBytesMax / 2, [client = service_.options_.client, weak = weak_from_this(), then] {
    client->post([weak, then] {
      const auto self = weak.lock();
      if (self != nullptr && !self->ended_) (*self.*then)();
    });
  });
}

void Job::resume() {
  if (!std::exchange(paused_, false)) return;
  if (transfer_) service_.options_.client->resume(*transfer_);  // between two attempts there is none
}

bool Job::on_data(std::string_view bytes) {
  if (ended_ || whole_) return pass_over(bytes);
  if (head_.status != 200) {
    refusal_.append(bytes.substr(0, kRefusalBytesMax - std::min(kRefusalBytesMax, refusal_.size())));
    if (refusal_.size() >= kRefusalBytesMax) refused();  // a reason is shorter, and this may never end
    return true;
  }
  if (order_.exchange->queued_bytes() > kQueuedBytesMax) {
    paused_ = true;
    when_read(&Job::resume);
    return false;
  }
  std::optional<Error> broken;
  const auto fed = decode(bytes, [&](std::string_view event) {
    if (!transfer_ || broken || last_seen_) return;
    const auto piece = service_.options_.engine->read(event);
    if (!piece) {
      broken = piece.error();
    } else {
      take(*piece);
    }
  });
  if (!transfer_) return true;  // the attempt or the whole job is over
  flush();
  if (!fed) broken = Error{ErrorCode::kIoError, fed.error().message, {}};
  if (broken) {
    attempt_failed(std::move(*broken), false);
  } else if (last_seen_) {
    complete();
  }
  return true;
}

base::Result<> Job::decode(std::string_view bytes, const std::function<void(std::string_view)>& take) {
  if (grpc_) return frames_.feed(bytes, take);
  const auto fed = decoder_.feed(bytes, [&](const net::sse::Decoder::Decoded& event) { take(event.data); });
  if (!fed) return base::fail(ErrorCode::kIoError, "an event of the engine's answer is too long");
  return {};
}

// What comes behind the end of the answer.
bool Job::pass_over(std::string_view bytes) {
  tail_bytes_ += bytes.size();
  if (tail_ && tail_bytes_ > kTailBytesMax) service_.options_.client->cancel(*std::exchange(tail_, std::nullopt));
  return true;
}

// An engine may tell more than was asked for.
std::vector<wire::TokenLogprobs> Job::wanted_logprobs(const engines::Piece& piece) const {
  const wire::SamplingRequest& asked = order_.request.sampling;
  if (!asked.logprobs) return {};
  std::vector<wire::TokenLogprobs> out = piece.logprobs;
  const auto top_max = static_cast<std::size_t>(asked.top_logprobs);
  for (wire::TokenLogprobs& token : out) {
    if (token.top_logprobs.size() > top_max) token.top_logprobs.resize(top_max);
  }
  return out;
}

void Job::take(const engines::Piece& piece) {
  if (piece.error) {
    const bool busy = piece.error->code == ErrorCode::kWorkerBusy;
    return attempt_failed(*piece.error, busy);
  }
  if (piece.text) {
    if (!first_token_ms_) {
      service_.engine_answered();
      first_token_ms_ = service_.options_.clock->now().mono_ms - begun_ms_;
      service_.counts_.first_tokens += 1;
      service_.counts_.first_token_ms += *first_token_ms_;
    }
    const auto added = writer_.add(*piece.text, piece.tokens, wanted_logprobs(piece), events_);
    if (!added) return fail(added.error());
  }
  if (piece.stop) stop_reason_ = piece.stop;
  if (piece.tokens_in) tokens_in_ = std::clamp<std::int64_t>(*piece.tokens_in, 0, kTokensMax);
  if (piece.tokens_out) tokens_counted_ = piece.tokens_out;
  last_seen_ = piece.last;
}

void Job::on_end(const base::Result<>& result) {
  transfer_.reset();
  if (ended_ || whole_) return;
  if (!result) {
    service_.engine_failed();
    if (kept_back_) return attempt_failed(*kept_back_, kept_back_->code != ErrorCode::kWorkerReset);
    return attempt_failed(result.error(), true);
  }
  if (head_.status != 200) return refused();
  if (grpc_ && grpc_status_.value_or(0) != 0) return refused_by_grpc(*grpc_status_);
  if (is_whole()) return complete();
  service_.engine_failed();
  attempt_failed({ErrorCode::kIoError, "its answer broke off", {}}, true);
}

// Not every server of HTTP says that it is done; one that gave a reason is. gRPC says it with a status.
bool Job::is_whole() const {
  if (grpc_) return grpc_status_ == 0 && frames_.is_between_messages();
  return stop_reason_ || tokens_counted_ || service_.options_.engine->ends_with_answer();
}

void Job::refused_by_grpc(int code) {
  const upstream::GrpcStatus status = upstream::grpc_status(code);
  head_.status = status.http_status;
  if (status.http_status < 500) service_.engine_answered();
  refusal_ = fmt::format(R"({{"code":"{}"}})", status.name);
  refused();
}

void Job::refused() {
  if (head_.status >= 500) service_.engine_failed();
  attempt_failed(engines::refusal(head_.status, refusal_, head_.retry_after_ms), may_pass(head_.status));
}

void Job::attempt_failed(Error error, bool may_help) {
  if (transfer_) service_.options_.client->cancel(*std::exchange(transfer_, std::nullopt));
  if (writer_.began()) return fail(lost(error));
  const auto delay_ms = may_help ? upstream::retry_delay_ms(service_.options_.retry, attempt_, head_.retry_after_ms,
                                                            *service_.options_.entropy)
                                 : std::nullopt;
  if (!delay_ms) {
    // A transport's code says nothing to whoever placed the job: the engine is what cannot be had.
    if (error.code == ErrorCode::kIoError) error = lost(error);
    if (error.code == ErrorCode::kTimeout) error.code = ErrorCode::kWorkerTimeout;
    return fail(std::move(error));
  }
  service_.counts_.retries += 1;
  base::log_event(LogLevel::kWarn, "upstream.retry", order_.correlation_id, "The engine is asked again.",
                  {{"job_id", job_id()},
                   {"attempt", std::int64_t{attempt_}},
                   {"backoff_ms", *delay_ms},
                   {"code", error.name()},
                   {"status", std::int64_t{head_.status}}});
  service_.options_.client->post_after(*delay_ms, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->ended_) self->ask();
  });
}

void Job::complete() {
  whole_ = true;
  if (transfer_) {
    tail_ = std::exchange(transfer_, std::nullopt);
    service_.options_.client->post_after(kTailMs,
                                         [client = service_.options_.client, id = *tail_] { client->cancel(id); });
  }
  write_rest();
}

void Job::write_rest() {
  const auto done = writer_.finish(tokens_counted_.value_or(0), events_);
  if (!done) return fail(done.error());
  if (*done) return write_end();
  flush();
  when_read(&Job::write_rest);
}

void Job::write_end() {
  if (!stop_reason_ && writer_.tokens_out() >= order_.request.max_tokens) stop_reason_ = wire::StopReason::kMaxTokens;
  const Identity& identity = service_.options_.identity;
  const std::int64_t ran_ms = service_.options_.clock->now().mono_ms - begun_ms_;
  const std::int64_t first_ms = first_token_ms_.value_or(ran_ms);
  wire::EndEvent end{.job_id = job_id(),
                     .tokens_in = tokens_in_.value_or(0),
                     .tokens_out = writer_.tokens_out(),
                     .decode_time_ms = ran_ms - first_ms,
                     .first_token_ms = first_ms,
                     .stop_reason = stop_reason_.value_or(wire::StopReason::kEos)};
  end.receipt = wire::Receipt{.model_digest = identity.model_digest,
                              .engine_build = identity.engine_build,
                              .numerics = "foreign",
                              .device_class = identity.device_class,
                              .sampler = std::string(service_.options_.engine->kind()),
                              .kv_dtype = "",
                              .seed = order_.seed,
                              .prompt_sha256 = order_.prompt_sha256,
                              .output_sha256 = writer_.sha256(),
                              .tokens_out = writer_.tokens_out(),
                              .parameters_sha256 = wire::parameters_sha256(order_.request),
                              .partial = true};
  append(events_, "end", wire::encode(end));
  base::log_event(LogLevel::kDebug, "execute_end", order_.correlation_id, "The job ended.",
                  {{"job_id", job_id()},
                   {"tokens_in", end.tokens_in},
                   {"tokens_out", end.tokens_out},
                   {"first_token_ms", end.first_token_ms},
                   {"decode_time_ms", end.decode_time_ms}});
  service_.counts_.tokens += writer_.tokens_out();
  finish(Service::Outcome::kCompleted);
}

void Job::fail(Error error) {
  if (ended_) return;
  flush();
  append(events_, "error", wire::encode(wire::error_body(error, order_.correlation_id)));
  const bool cancelled = error.code == ErrorCode::kCancelled;
  base::log_event(cancelled ? LogLevel::kDebug : LogLevel::kError, "execute_end", order_.correlation_id,
                  "The job ended early.", {{"job_id", job_id()}, {"code", error.name()}, {"message", error.message}});
  finish(cancelled ? Service::Outcome::kCancelled : Service::Outcome::kFailed);
}

void Job::stop(Error error) { fail(std::move(error)); }

void Job::flush() {
  if (events_.empty()) return;
  order_.exchange->write(events_);
  events_.clear();
}

// The slot is free before the last event leaves, so that whoever reads it finds room.
void Job::finish(Service::Outcome outcome) {
  ended_ = true;
  if (timeout_) service_.options_.client->cancel(*timeout_);  // whose weak pointer keeps this job's memory
  if (transfer_) service_.options_.client->cancel(*std::exchange(transfer_, std::nullopt));
  const auto self = shared_from_this();
  service_.ended(order_.number, outcome);
  flush();
  order_.exchange->end();
}

}  // namespace llorch::adapter::jobs
