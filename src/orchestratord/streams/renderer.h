#pragma once
// How one client sees a job's stream: the stream keeps events, a renderer makes bytes of them. One renderer per client.
//
// Calls come in the order of the events: queued, started, token 0, 1, 2, ..., then end or error, each at most once but
// for token and metrics. An error may come after any of them, or alone; an end comes after all tokens, or, to a
// stateless renderer only, alone, where the tokens are no longer held. Every call appends to `out`, which may hold
// earlier bytes; it may append nothing.
//
// Thread rule: one call at a time, on any thread, under the lock of the stream; one that makes a whole answer without it. A renderer
// does not block and does not call the stream. token() runs 250,000 times a second: it allocates nothing but the growth of `out`.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "net/http/message.h"
#include "orchestratord/streams/replay/event_id.h"
#include "orchestratord/streams/replay/token_json.h"
#include "wire/task.h"

namespace llorch::orchestratord::streams {

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
  // Appends the next of the events that the calls until now have left; false: they left none. One leaves those that may each be as long as
  // the whole output, so that a client has one of them to take at a time. They come before what the next call appends.
  virtual bool more(std::string&) { return false; }
  // What it holds of the output; of one that streams it counts as its stream's.
  virtual std::size_t bytes_held() const { return 0; }
  // `id` is absent where the error is of this client and not the job's end (REPLAY_DIVERGED, CONFLICT). A format that cannot tell the
  // two apart appends nothing then, and the client is cut off.
  virtual void error(const wire::ErrorBody& error, const std::optional<EventId>& id, std::string& out) = 0;
  // Bytes that show a client that the stream lives; none where the format knows no such thing.
  virtual void keep_alive(std::string& out) = 0;
};

// One that makes one answer when the job has ended.
class WholeRenderer : public Renderer {
 public:
  bool streams() const final { return false; }
  Head head() const final { return head_; }
  void queued(const wire::QueuedEvent&, const EventId&, std::string&) override {}
  void started(const wire::StartedEvent&, const EventId&, std::string&) override {}
  void metrics(const wire::MetricsEvent&, std::string&) final {}
  void keep_alive(std::string&) final {}

 protected:
  void answer(net::http::Response response, std::string& out) {
    out += response.body;
    head_ = {.status = response.status, .headers = std::move(response.headers)};
  }

 private:
  Head head_;
};

}  // namespace llorch::orchestratord::streams
