#pragma once
// What one job's clients read: its events as bytes of the wire, and the hash chain that proves every prefix. Pure: no
// sockets, threads or clock. Not thread-safe.
//
// Tokens are kept in RAM for as long as the job lives, and are nowhere else (promise 5).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "orchestratord/streams/log/event_id.h"
#include "wire/task.h"

namespace llorch::orchestratord::streams {

class StreamLog {
 public:
  StreamLog();

  // The events `queued` and `started` go out once; later calls, of a retry, change nothing.
  void queued(const wire::QueuedEvent& event);
  // Says again what `queued` said of position and start. REQUIRES queued() before.
  void started(const wire::StartedEvent& event);

  // The tokens of the next attempt begin at 0. Those already held are compared, not sent again.
  void begin_attempt() { attempt_tokens_ = 0; }
  // REPLAY_DIVERGED: another text than the one held. WORKER_RESET: `i` is not the next index of this attempt.
  // `logprobs`: JSON for the event, empty for none; compared like the text, but no part of the hash.
  // REQUIRES started() before, not finished.
  base::Result<> token(std::int64_t i, std::string_view t, std::string_view logprobs = {});

  // From here on token() changes nothing and advance() sends no token any more, held or not (ORCH-3026).
  void seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }

  struct Terminal {
    std::string_view event;  // "end" or "error"
    std::string_view data;   // one line of JSON
  };
  // REQUIRES not finished.
  void finish(const Terminal& terminal);

  bool finished() const { return terminal_.has_value(); }
  bool finished_in_error() const { return terminal_ && terminal_error_; }
  // The id the terminal event has, or would have now.
  EventId terminal_id() const { return {kFirstTokenSeq + tokens_count(), prefix_}; }
  std::int64_t tokens_count() const { return std::max<std::int64_t>(0, events_count() - kFirstTokenSeq); }
  // Numbered events held, without the terminal one: those with seq 0 .. count-1.
  std::int64_t events_count() const { return static_cast<std::int64_t>(events_.size()); }
  EventId id_of(std::int64_t seq) const;  // REQUIRES 0 <= seq < events_count()
  std::string_view terminal_frame() const { return terminal_ ? std::string_view(*terminal_) : std::string_view(); }
  // The events from `seq` on, as many whole ones as fit into `bytes_max`, at least one. REQUIRES seq < events_count().
  struct Frames {
    std::string_view bytes;
    std::int64_t next_seq = 0;
  };
  Frames frames(std::int64_t seq, std::size_t bytes_max) const;

  std::size_t bytes_held() const;

 private:
  void append(const EventId& id, std::string_view event, std::string_view data);

  struct Held {
    std::size_t end = 0;       // in bytes_
    std::uint64_t prefix = 0;  // of its id
  };
  std::string bytes_;         // all events so far, one after the other
  std::vector<Held> events_;  // by seq
  base::Sha256 hash_;         // of all tokens held
  std::uint64_t empty_prefix_ = 0;
  std::uint64_t prefix_ = 0;                                  // of hash_
  std::int64_t attempt_tokens_ = 0;                           // of the current attempt
  std::int64_t queue_position_ = 0, predicted_start_ms_ = 0;  // of the event queued
  bool sealed_ = false;
  std::optional<std::string> terminal_;
  bool terminal_error_ = false;
};

// Where one client stands.
struct Cursor {
  std::int64_t next_seq = 0;
  // What the client said it holds. Set while the log, after a restart, has not replayed that far.
  std::optional<EventId> claim;
};

// The cursor of a new client. `last_event_id`: what it holds, absent for a client that reads from the beginning.
inline Cursor attach(const std::optional<EventId>& last_event_id) { return {.next_seq = 0, .claim = last_event_id}; }

struct Next {
  enum class Kind {
    kWait,      // nothing to send yet
    kFrames,    // send `bytes`, ask again
    kLast,      // send `bytes` (may be empty: the client holds the terminal event already), then close
    kDiverged,  // the claim is not of this stream: send the error REPLAY_DIVERGED, then close
  };
  Kind kind = Kind::kWait;
  std::string_view bytes;  // valid until the log changes
};
// What to send next, at most `bytes_max` (but one whole event); moves the cursor past it.
Next advance(const StreamLog& log, Cursor& cursor, std::size_t bytes_max);

// What a client gets of a job whose tokens are no longer held.
struct StoredTerminal {
  EventId id;
};
enum class StoredAnswer {
  kTerminalEvent,  // send it, then close
  kNothing,        // the client holds it already: close
  kOffsetGone,     // 410: the events in between are not held
};
StoredAnswer answer_from_store(const StoredTerminal& terminal, const std::optional<EventId>& last_event_id);

}  // namespace llorch::orchestratord::streams
