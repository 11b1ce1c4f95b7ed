#pragma once
// How one client sees a job's stream: the stream keeps events, a renderer makes bytes of them. One renderer per client.
//
// Calls come in the order of the events: queued, started, token 0, 1, 2, ..., then end or error, each at most once but
// for token and metrics. A renderer must not rely on those before the last: a job that is cancelled in the queue has an
// error alone, and so has one of which the tokens are no longer held. Every call appends to `out`, which holds earlier
// bytes; it may append nothing.
//
// Thread rule: one call at a time, on any thread, under the lock of the stream. A renderer does not block and does not
// call the stream. token() runs 250,000 times a second: it allocates nothing but the growth of `out`.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/token_id.h"
#include "net/http/message.h"
#include "orchestratord/streams/log/event_id.h"
#include "wire/task.h"

namespace llorch::orchestratord::streams {

// A token as a stream holds it. The views live until the call returns.
struct TokenView {
  std::string_view t;                 // whole code points of UTF-8; may be empty
  std::int64_t i = 0;                 // 0, 1, 2, ...
  std::string_view logprobs{};        // JSON of wire::TokenLogprobs; empty: none
  std::optional<base::TokenId> id{};  // absent: the worker did not say
};

class Renderer {
 public:
  virtual ~Renderer() = default;

  // True: bytes go to the client as they are made, under the head as it is before the first event. False: the client
  // gets one answer when the job has ended; its body is all bytes in their order, its head is asked after the last
  // event, and neither metrics nor keep_alive is called.
  virtual bool streams() const = 0;
  struct Head {
    int status = 200;
    net::http::Headers headers;
  };
  virtual Head head() const = 0;
  // True: the bytes of an event depend on that event alone. A client that resumes is then rendered only what it lacks;
  // else everything is rendered from the first event on, and what the client holds already is dropped.
  virtual bool stateless() const { return false; }

  virtual void queued(const wire::QueuedEvent& event, const EventId& id, std::string& out) = 0;
  virtual void started(const wire::StartedEvent& event, const EventId& id, std::string& out) = 0;
  virtual void token(const TokenView& token, const EventId& id, std::string& out) = 0;
  // Has no id and is not replayed.
  virtual void metrics(const wire::MetricsEvent& event, std::string& out) = 0;
  virtual void end(const wire::EndEvent& event, const EventId& id, std::string& out) = 0;
  // `id` is absent where the error is of this client and not the job's end (REPLAY_DIVERGED).
  virtual void error(const wire::ErrorBody& error, const std::optional<EventId>& id, std::string& out) = 0;
  // Bytes that show a client that the stream lives; none where the format knows no such thing.
  virtual void keep_alive(std::string& out) = 0;
};

}  // namespace llorch::orchestratord::streams
