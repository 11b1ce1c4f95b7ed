#include "orchestratord/streams/replay/replay_log.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::orchestratord::streams {
namespace {

// Up to here memory doubles when it grows; from here on it grows by a quarter, for all of it counts as held.
constexpr std::size_t kDoubledBytesMax = 64 << 10;

std::uint64_t first_8_bytes(const base::Sha256Digest& digest) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i) out = out << 8 | digest[i];
  return out;
}

}  // namespace

ReplayLog::ReplayLog() : empty_prefix_(first_8_bytes(hash_.digest())), prefix_(empty_prefix_) {}

void ReplayLog::queued(const wire::QueuedEvent& event) {
  if (!queued_) queued_ = event;
}

void ReplayLog::started(const wire::StartedEvent& event) {
  ASSERT(queued_);
  if (started_) return;
  started_ = event;
  started_->queue_position = queued_->queue_position;
  started_->predicted_start_ms = queued_->predicted_start_ms;
}

base::Result<> ReplayLog::token(const TokenView& token) {
  if (sealed_) return {};
  ASSERT(started_ && !finished());
  if (token.i != attempt_tokens_) {
    return base::fail(base::Error{base::ErrorCode::kWorkerReset, "the worker's tokens are not in sequence", {}}
                          .with("expected_index", attempt_tokens_)
                          .with("index", token.i));
  }
  if (token.i < tokens_count()) {
    if (token != held(token.i)) {
      return base::fail(base::Error{
          base::ErrorCode::kReplayDiverged,
          "the job was run again and did not reproduce what its stream had already sent; submit "
          "it again",
          {}}.with("index", token.i));
    }
    ++attempt_tokens_;
    return {};
  }
  if (token.of_prompt && prompt_tokens_count_ != tokens_count()) {
    return base::fail(
        base::Error{base::ErrorCode::kWorkerReset, "the worker told of the prompt behind the output", {}}.with(
            "index", token.i));
  }
  prompt_tokens_count_ += token.of_prompt;
  const auto text_size = static_cast<std::uint32_t>(token.t.size());
  hash_.update_u32_le(static_cast<std::uint32_t>(token.i)).update_u32_le(text_size).update(token.t);
  prefix_ = first_8_bytes(hash_.digest());
  grow(token.t.size() + token.logprobs.size());
  bytes_.append(token.t).append(token.logprobs);
  tokens_.push_back({.end = bytes_.size(), .prefix = prefix_, .text_size = text_size, .id = token.id.value_or(kNoId)});
  ++attempt_tokens_;
  return {};
}

void ReplayLog::grow(std::size_t bytes) {
  const std::size_t wanted = bytes_.size() + bytes;
  if (wanted > bytes_.capacity() && bytes_.size() >= kDoubledBytesMax) {
    std::string larger;  // one that holds something doubles whatever it is asked for
    larger.reserve(std::max(wanted, bytes_.size() + bytes_.size() / 4));
    larger.append(bytes_);
    bytes_ = std::move(larger);
  }
  if (tokens_.size() == tokens_.capacity() && tokens_.size() * sizeof(Held) >= kDoubledBytesMax)
    tokens_.reserve(tokens_.size() + tokens_.size() / 4);
}

void ReplayLog::drop_tokens() {
  ASSERT(finished());
  std::string().swap(bytes_);
  std::vector<Held>().swap(tokens_);
  prompt_tokens_count_ = 0;
}

void ReplayLog::finish(Terminal terminal) {
  ASSERT(!finished());
  terminal_ = std::move(terminal);
}

EventId ReplayLog::id_of(std::int64_t seq) const {
  ASSERT(seq >= 0 && seq < events_count(), "seq={} count={}", seq, events_count());
  return {seq, seq < kFirstTokenSeq ? empty_prefix_ : tokens_[static_cast<std::size_t>(seq - kFirstTokenSeq)].prefix};
}

TokenView ReplayLog::held(std::int64_t i) const {
  const auto index = static_cast<std::size_t>(i);
  const Held& token = tokens_[index];
  const std::size_t begin = index == 0 ? 0 : tokens_[index - 1].end;
  const std::string_view bytes = std::string_view(bytes_).substr(begin, token.end - begin);
  return {.t = bytes.substr(0, token.text_size),
          .i = i,
          .logprobs = bytes.substr(token.text_size),
          .id = token.id == kNoId ? std::nullopt : std::optional(token.id),
          .of_prompt = i < prompt_tokens_count_};
}

void ReplayLog::render(std::int64_t seq, Renderer& renderer, std::string& out) const {
  const EventId id = id_of(seq);
  if (seq == kQueuedSeq) return renderer.queued(*queued_, id, out);
  if (seq == kStartedSeq) return renderer.started(*started_, id, out);
  renderer.token(held(seq - kFirstTokenSeq), id, out);
}

void ReplayLog::render_terminal(Renderer& renderer, std::string& out) const {
  if (terminal_) streams::render(*terminal_, terminal_id(), renderer, out);
}

void render(const ReplayLog::Terminal& terminal, const EventId& id, Renderer& renderer, std::string& out) {
  if (const auto* end = std::get_if<wire::EndEvent>(&terminal)) return renderer.end(*end, id, out);
  renderer.error(std::get<wire::ErrorBody>(terminal), id, out);
}

namespace {

// Of the events that were left, as many as find room; false: `out` has no more room.
bool render_left(Renderer& renderer, std::size_t out_bytes_max, std::string& out) {
  while (out.size() < out_bytes_max) {
    if (!renderer.more(out)) return true;
  }
  return false;
}

Next end(const ReplayLog& log, Cursor& cursor, Renderer& renderer, std::size_t out_bytes_max, std::string& out) {
  log.render_terminal(renderer, out);
  cursor.has_ended = true;
  return render_left(renderer, out_bytes_max, out) ? Next::kLast : Next::kMore;
}

}  // namespace

Next advance(const ReplayLog& log, Cursor& cursor, Renderer& renderer, std::size_t bytes_max, std::string& out) {
  const std::size_t begin = out.size(), out_bytes_max = begin + bytes_max;
  if (!render_left(renderer, out_bytes_max, out)) return Next::kMore;
  if (cursor.has_ended) return Next::kLast;
  if (cursor.last_event_id) {
    const EventId last = *cursor.last_event_id;
    if (last.seq < log.events_count()) {
      if (log.id_of(last.seq) != last) return Next::kDiverged;
      if (!renderer.stateless()) {
        std::string held;  // by the client
        for (std::int64_t seq = 0; seq <= last.seq; ++seq, held.clear()) {
          log.render(seq, renderer, held);
          while (renderer.more(held)) held.clear();
        }
      }
      cursor = {.next_seq = last.seq + 1, .last_event_id = std::nullopt, .has_ended = false};
    } else if (!log.finished()) {
      return Next::kWait;  // a replay that has not come so far, or an id that never was
    } else if (log.terminal_id() == last) {
      return Next::kLast;
    } else if (log.error() != nullptr) {
      // Cancelled or failed before the replay reached that id: so the stream ends, whatever was held.
      return end(log, cursor, renderer, out_bytes_max, out);
    } else {
      return Next::kDiverged;
    }
  }
  const std::int64_t readable = log.sealed() ? std::min(kFirstTokenSeq, log.events_count()) : log.events_count();
  if (cursor.next_seq < readable) {
    do log.render(cursor.next_seq++, renderer, out);
    while (render_left(renderer, out_bytes_max, out) && cursor.next_seq < readable);
    return Next::kMore;
  }
  if (log.finished()) return end(log, cursor, renderer, out_bytes_max, out);
  return out.size() == begin ? Next::kWait : Next::kMore;
}

StoredAnswer answer_from_store(const StoredTerminal& terminal, const std::optional<EventId>& last_event_id) {
  if (!last_event_id) return StoredAnswer::kTerminalEvent;
  if (*last_event_id == terminal.id) return StoredAnswer::kNothing;
  // The last event before the terminal one carries the same prefix. A job that ended while it waited has no `started`.
  const bool is_next = last_event_id->seq + 1 == terminal.id.seq ||
                       (last_event_id->seq == kQueuedSeq && terminal.id.seq == kFirstTokenSeq);
  const bool holds_all = is_next && last_event_id->prefix == terminal.id.prefix;
  return holds_all ? StoredAnswer::kTerminalEvent : StoredAnswer::kOffsetGone;
}

}  // namespace llorch::orchestratord::streams
