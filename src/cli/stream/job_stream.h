#pragma once
// Assembles the outcome of a job from its event stream, over any number of connections. One object, one thread at a
// time; the caller locks.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/sse/sse.h"
#include "wire/task.h"

namespace llorch::cli::stream {

struct Outcome {
  std::optional<wire::EndEvent> end;
  std::optional<base::Error> error;
  std::string text;
  std::uint64_t seed = 0;
  std::int64_t queue_wait_ms = 0;
};

class JobStream {
 public:
  // Gets every token's text as it arrives; false when it cannot be delivered any more, which ends the stream CANCELLED.
  using Print = std::function<bool(std::string_view text)>;
  explicit JobStream(Print print) : print_(std::move(print)) {}

  // A new connection. Send last_event_id() with it if there is one.
  void connect();
  void on_response(int status);
  // True if the bytes were part of the event stream, a sign that the job's server is alive.
  bool on_data(std::string_view bytes);
  void on_end();
  // Ends the stream with `error`, unless it has ended.
  void end_with(base::Error error);

  bool ended() const { return outcome_.end || outcome_.error; }
  const std::string& last_event_id() const { return last_event_id_; }
  bool output_lost() const { return output_lost_; }
  // What the server said when it last refused with a status of 500 or more: reported when waiting is given up.
  const std::optional<base::Error>& last_failure() const { return last_failure_; }
  const Outcome& outcome() const { return outcome_; }

 private:
  void take_event(const net::sse::Event& event);

  const Print print_;
  net::sse::Decoder decoder_;
  Outcome outcome_;
  std::string last_event_id_;
  std::string body_;  // of a response that is no stream
  int status_ = 0;
  bool output_lost_ = false;
  bool begun_ = false;  // the event `started` or a token has come
  std::optional<base::Error> last_failure_;
};

}  // namespace llorch::cli::stream
