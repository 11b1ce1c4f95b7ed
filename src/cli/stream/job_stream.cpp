#include "cli/stream/job_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "net/http/error_response.h"
#include "wire/json.h"

namespace llorch::cli::stream {
namespace {
constexpr std::size_t kErrorBodyBytesMax = 65536;

base::Error tokens_gone(const wire::EndEvent& end) {
  return base::Error{
      base::ErrorCode::kStreamOffsetGone,
      "the job has ended and its tokens are not held any more: they are kept in memory only, for stream.retain_ms, or "
      "for stream.reconnect_grace_ms once a client was sent them all. For the output, run it again with its seed",
      {}}
      .with("job_id", end.job_id)
      .with("tokens_out", end.tokens_out)
      .with("stop_reason", std::string(wire::enum_name(end.stop_reason)));
}
}  // namespace

void JobStream::connect() {
  decoder_ = net::sse::Decoder();
  body_.clear();
  status_ = 0;
}

void JobStream::on_response(int status) { status_ = status; }

bool JobStream::on_data(std::string_view bytes) {
  if (status_ != 200) {
    body_.append(bytes.substr(0, kErrorBodyBytesMax - std::min(kErrorBodyBytesMax, body_.size())));
    return false;
  }
  std::vector<net::sse::Event> events;
  const auto fed = decoder_.feed(bytes, events);
  for (const net::sse::Event& event : events) {
    if (!ended()) take_event(event);
  }
  if (!fed) end_with(fed.error());
  return true;
}

void JobStream::on_end() {
  if (status_ < 400) return;
  base::Error error = net::http::error_of({.status = status_, .body = body_});
  // 4xx is an answer, but for 429, which says when to come back; a server that fails may be a restart in progress.
  if (status_ < 500 && status_ != 429) return end_with(std::move(error));
  last_failure_ = std::move(error);
}

void JobStream::end_with(base::Error error) {
  if (!ended()) outcome_.error = std::move(error);
}

void JobStream::take_event(const net::sse::Event& event) {
  if (event.id) last_event_id_ = *event.id;
  if (event.event == "token") {
    const auto token = wire::decode<wire::TokenEvent>(event.data);
    if (!token) return end_with(token.error());
    begun_ = true;
    outcome_.text += token->t;
    if (print_(token->t)) return;
    output_lost_ = true;
    end_with({base::ErrorCode::kCancelled, "standard output is closed", {}});
  } else if (event.event == "started") {
    begun_ = true;
    if (const auto started = wire::decode<wire::StartedEvent>(event.data)) {
      outcome_.seed = started->seed;
      outcome_.queue_wait_ms = started->queue_wait_ms.value_or(0);
    }
  } else if (event.event == "end") {
    auto end = wire::decode<wire::EndEvent>(event.data);
    if (!end) return end_with(end.error());
    // Of a job that has ended, a server that holds its tokens no more has this event alone.
    if (!begun_ && end->tokens_out > 0) return end_with(tokens_gone(*end));
    outcome_.end = std::move(*end);
  } else if (event.event == "error") {
    const auto body = wire::decode<wire::ErrorBody>(event.data);
    end_with(body ? wire::to_error(*body) : body.error());
  }
}

}  // namespace llorch::cli::stream
