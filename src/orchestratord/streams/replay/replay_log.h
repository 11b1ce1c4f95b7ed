#pragma once
// What one job's clients read: its events, and the hash chain that proves every prefix. Pure: no sockets, threads or
// clock. Not thread-safe.
//
// Tokens are kept in RAM for as long as the job lives, and are nowhere else (promise 5).
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "orchestratord/streams/renderer.h"
#include "orchestratord/streams/replay/event_id.h"
#include "orchestratord/streams/replay/token_json.h"
#include "wire/task.h"

namespace llorch::orchestratord::streams {

class ReplayLog {
 public:
  ReplayLog();

  // The events `queued` and `started` are kept once; later calls, of a retry, change nothing.
  void queued(const wire::QueuedEvent& event);
  // Says again what `queued` said of position and start. REQUIRES queued() before.
  void started(const wire::StartedEvent& event);

  // The tokens of the next attempt begin at 0. Those already held are compared, not kept again.
  void begin_attempt() { attempt_tokens_ = 0; }
  // REPLAY_DIVERGED: another text, id or logprobs than those held. WORKER_RESET: `i` is not the next index of this
  // attempt, or a token of the prompt follows on one of the output. Of the hash are only `i` and the text. REQUIRES started()
  // before, not finished.
  base::Result<> token(const TokenView& token);

  // From here on token() changes nothing and advance() renders no token any more, held or not (ORCH-3026).
  void seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }

  // The terminal event: end, or error.
  using Terminal = std::variant<wire::EndEvent, wire::ErrorBody>;
  // REQUIRES not finished.
  void finish(Terminal terminal);

  bool finished() const { return terminal_.has_value(); }
  // The error that it ended with; null: it has not ended, or with none.
  const wire::ErrorBody* error() const { return terminal_ ? std::get_if<wire::ErrorBody>(&*terminal_) : nullptr; }
  // Absent: not started.
  std::optional<std::uint64_t> seed() const { return started_ ? std::optional(started_->seed) : std::nullopt; }
  // The id the terminal event has, or would have now.
  EventId terminal_id() const { return {kFirstTokenSeq + tokens_count(), prefix_}; }
  std::int64_t tokens_count() const { return static_cast<std::int64_t>(tokens_.size()); }
  // Of them, those of the prompt; they are the first.
  std::int64_t prompt_tokens_count() const { return prompt_tokens_count_; }
  // Numbered events held, without the terminal one: those with seq 0 .. count-1.
  std::int64_t events_count() const { return queued_.has_value() + started_.has_value() + tokens_count(); }
  EventId id_of(std::int64_t seq) const;  // REQUIRES 0 <= seq < events_count()
  // Appends the event's bytes. REQUIRES 0 <= seq < events_count().
  void render(std::int64_t seq, Renderer& renderer, std::string& out) const;
  // The same of the terminal event, which is none while not finished.
  void render_terminal(Renderer& renderer, std::string& out) const;

  // Gives back the memory of the tokens. REQUIRES finished; nothing is rendered after it.
  void drop_tokens();

  std::size_t bytes_held() const { return bytes_.capacity() + tokens_.capacity() * sizeof(Held); }

 private:
  static constexpr auto kNoId = static_cast<base::TokenId>(std::numeric_limits<std::uint32_t>::max());
  struct Held {
    std::size_t end = 0;          // in bytes_: of its text and then its logprobs
    std::uint64_t prefix = 0;     // of its event id
    std::uint32_t text_size = 0;  // bytes
    base::TokenId id = kNoId;
  };
  TokenView held(std::int64_t i) const;
  // Makes room for one more token of so many bytes.
  void grow(std::size_t bytes);

  std::optional<wire::QueuedEvent> queued_;
  std::optional<wire::StartedEvent> started_;
  std::string bytes_;         // of all tokens, one after the other
  std::vector<Held> tokens_;  // by index
  std::int64_t prompt_tokens_count_ = 0;
  base::Sha256 hash_;  // of all tokens held
  std::uint64_t empty_prefix_ = 0;
  std::uint64_t prefix_ = 0;         // of hash_
  std::int64_t attempt_tokens_ = 0;  // of the current attempt
  bool sealed_ = false;
  std::optional<Terminal> terminal_;
};

// Appends the bytes of a terminal event.
void render(const ReplayLog::Terminal& terminal, const EventId& id, Renderer& renderer, std::string& out);

// Where one client stands.
struct Cursor {
  std::int64_t next_seq = 0;
  // What the client said it holds. Set until the log, after a restart, has replayed that far.
  std::optional<EventId> last_event_id;
  bool has_ended = false;  // the terminal event was rendered, and maybe left others
};

// The cursor of a new client. `last_event_id`: what it holds, absent for a client that reads from the beginning.
inline Cursor attach(const std::optional<EventId>& last_event_id) {
  return {.next_seq = 0, .last_event_id = last_event_id, .has_ended = false};
}

enum class Next {
  kWait,      // nothing to send yet
  kMore,      // send what was rendered, ask again
  kLast,      // send what was rendered (maybe nothing: the client holds the terminal event already), then close
  kDiverged,  // the client's last event id is not of this stream: send the error REPLAY_DIVERGED, then close
};
// Renders what to send next into `out`, whole events until these are `bytes_max` or more; moves the cursor past them.
Next advance(const ReplayLog& log, Cursor& cursor, Renderer& renderer, std::size_t bytes_max, std::string& out);

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
