#include "orchestratord/streams/log/stream_log.h"

#include <algorithm>

#include "base/assert.h"
#include "net/sse/sse.h"
#include "orchestratord/streams/log/token_json.h"
#include "wire/json.h"

namespace llorch::orchestratord::streams {
namespace {

std::uint64_t first_8_bytes(const base::Sha256Digest& digest) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i) out = out << 8 | digest[i];
  return out;
}

void append_frame(std::string& out, const EventId& id, std::string_view event, std::string_view data) {
  net::sse::append_event(out, {.event = event, .id = to_string(id), .data = data});
}

// The same for a token, straight into `out`. Its JSON is one line.
void append_token_frame(std::string& out, const EventId& id, const TokenData& token) {
  out += "event: token\nid: ";
  append_event_id(out, id);
  out += "\ndata: ";
  append_token_json(out, token);
  out += "\n\n";
}

}  // namespace

StreamLog::StreamLog() : empty_prefix_(first_8_bytes(hash_.digest())), prefix_(empty_prefix_) {}

void StreamLog::append(const EventId& id, std::string_view event, std::string_view data) {
  append_frame(bytes_, id, event, data);
  events_.push_back({.end = bytes_.size(), .prefix = id.prefix});
}

void StreamLog::queued(const wire::QueuedEvent& event) {
  if (events_count() > kQueuedSeq) return;
  queue_position_ = event.queue_position;
  predicted_start_ms_ = event.predicted_start_ms;
  append({kQueuedSeq, empty_prefix_}, "queued", wire::encode(event));
}

void StreamLog::started(const wire::StartedEvent& event) {
  ASSERT(events_count() > kQueuedSeq);
  if (events_count() > kStartedSeq) return;
  wire::StartedEvent told = event;
  told.queue_position = queue_position_;
  told.predicted_start_ms = predicted_start_ms_;
  append({kStartedSeq, empty_prefix_}, "started", wire::encode(told));
}

base::Result<> StreamLog::token(std::int64_t i, std::string_view t, std::string_view logprobs) {
  if (sealed_) return {};
  ASSERT(events_count() > kStartedSeq && !finished());
  if (i != attempt_tokens_) {
    return base::fail(base::Error{base::ErrorCode::kWorkerReset, "the worker's tokens are not in sequence", {}}
                          .with("expected_index", attempt_tokens_)
                          .with("index", i));
  }
  const TokenData token{.t = t, .i = i, .logprobs = logprobs};
  const std::int64_t seq = kFirstTokenSeq + i;
  if (seq < events_count()) {
    std::string again;
    append_token_frame(again, id_of(seq), token);
    if (again != frames(seq, 1).bytes) {
      return base::fail(base::Error{
          base::ErrorCode::kReplayDiverged,
          "the job was run again and did not reproduce what its stream had already sent; submit "
          "it again",
          {}}.with("index", i));
    }
    ++attempt_tokens_;
    return {};
  }
  hash_.update_u32_le(static_cast<std::uint32_t>(i)).update_u32_le(static_cast<std::uint32_t>(t.size())).update(t);
  prefix_ = first_8_bytes(hash_.digest());
  append_token_frame(bytes_, {seq, prefix_}, token);
  events_.push_back({.end = bytes_.size(), .prefix = prefix_});
  ++attempt_tokens_;
  return {};
}

void StreamLog::finish(const Terminal& terminal) {
  ASSERT(!finished());
  terminal_.emplace();
  append_frame(*terminal_, terminal_id(), terminal.event, terminal.data);
  terminal_error_ = terminal.event == "error";
}

EventId StreamLog::id_of(std::int64_t seq) const {
  ASSERT(seq >= 0 && seq < events_count(), "seq={} count={}", seq, events_count());
  return {seq, events_[static_cast<std::size_t>(seq)].prefix};
}

StreamLog::Frames StreamLog::frames(std::int64_t seq, std::size_t bytes_max) const {
  ASSERT(seq >= 0 && seq < events_count(), "seq={} count={}", seq, events_count());
  const auto first = static_cast<std::size_t>(seq);
  const std::size_t begin = first == 0 ? 0 : events_[first - 1].end;
  std::size_t last = first;
  const std::size_t end =
      sealed_ && first < kFirstTokenSeq ? std::min<std::size_t>(kFirstTokenSeq, events_.size()) : events_.size();
  while (last + 1 < end && events_[last + 1].end - begin <= bytes_max) ++last;
  return {std::string_view(bytes_).substr(begin, events_[last].end - begin), static_cast<std::int64_t>(last) + 1};
}

std::size_t StreamLog::bytes_held() const { return bytes_.capacity() + events_.capacity() * sizeof(Held); }

Next advance(const StreamLog& log, Cursor& cursor, std::size_t bytes_max) {
  if (cursor.claim) {
    const EventId claim = *cursor.claim;
    if (claim.seq < log.events_count()) {
      if (log.id_of(claim.seq) != claim) return {Next::Kind::kDiverged, {}};
      cursor = {.next_seq = claim.seq + 1, .claim = std::nullopt};
    } else if (!log.finished()) {
      return {Next::Kind::kWait, {}};  // a replay that has not come so far, or an id that never was
    } else if (log.terminal_id() == claim) {
      return {Next::Kind::kLast, {}};
    } else if (log.finished_in_error()) {
      // Cancelled or failed before the replay reached the claim: that is how the stream ends, whatever was held.
      return {Next::Kind::kLast, log.terminal_frame()};
    } else {
      return {Next::Kind::kDiverged, {}};
    }
  }
  const std::int64_t readable = log.sealed() ? std::min(kFirstTokenSeq, log.events_count()) : log.events_count();
  if (cursor.next_seq < readable) {
    const StreamLog::Frames frames = log.frames(cursor.next_seq, bytes_max);
    cursor.next_seq = frames.next_seq;
    return {Next::Kind::kFrames, frames.bytes};
  }
  if (log.finished()) return {Next::Kind::kLast, log.terminal_frame()};
  return {Next::Kind::kWait, {}};
}

StoredAnswer answer_from_store(const StoredTerminal& terminal, const std::optional<EventId>& last_event_id) {
  if (!last_event_id) return StoredAnswer::kTerminalEvent;
  if (*last_event_id == terminal.id) return StoredAnswer::kNothing;
  // The last event before the terminal one carries the same prefix.
  const bool holds_all = last_event_id->seq + 1 == terminal.id.seq && last_event_id->prefix == terminal.id.prefix;
  return holds_all ? StoredAnswer::kTerminalEvent : StoredAnswer::kOffsetGone;
}

}  // namespace llorch::orchestratord::streams
