#include "orchestratord/streams/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>

#include "base/assert.h"
#include "orchestratord/streams/replay/offset_gone.h"

namespace llorch::orchestratord::streams {
namespace {

// A client's socket queue is filled by kWriteBytes at a time while it holds less than kQueuedBytesMax, and again below kQueuedBytesLow:
// it holds kUnsentBytesMax at most and, beyond that, one event, of which those that close an output of /v1/responses hold all of it. No
// tenant's share counts these bytes; without such an event they are fewer than the kernel holds for a connection.
constexpr std::size_t kWriteBytes = 16 << 10;
constexpr std::size_t kQueuedBytesMax = Stream::kUnsentBytesMax - kWriteBytes;
constexpr std::size_t kQueuedBytesLow = 16 << 10;

base::Error diverged_error() {
  return base::Error{base::ErrorCode::kReplayDiverged,
                     "the stream does not contain the event named by Last-Event-ID: what the client holds is no prefix "
                     "of it; read it from the beginning or submit the job again",
                     {}};
}

constexpr std::size_t kThreadBytesMax = 1 << 20;

// Where bytes are rendered on their way to a socket. One per thread: a stream that waits holds none, and the next token finds the room of
// the last, but for that of an event as long as an output.
std::string& thread_bytes() {
  thread_local std::string bytes;
  bytes.clear();
  if (bytes.capacity() > kThreadBytesMax) bytes.shrink_to_fit();
  return bytes;
}

base::Error too_many_readers() {
  return base::Error{
      base::ErrorCode::kConflict,
      fmt::format("{} other clients of this caller read the job's stream, as many as may at a time; read it with fewer",
                  Stream::kReadersMax),
      {}}
      .with("reason", std::string("TOO_MANY_READERS"))
      .with("limit", static_cast<std::int64_t>(Stream::kReadersMax));
}

net::http::Headers with(net::http::Headers headers, const net::http::Headers& more) {
  for (const auto& [name, value] : more.fields()) headers.set(name, value);
  return headers;
}

}  // namespace

Stream::Stream(Identity identity, const config::StreamConfig& limits, Watcher& watcher)
    : identity_(std::move(identity)), limits_(limits), watcher_(watcher) {}

Stream::~Stream() { watcher_.on_bytes_held(identity_, -bytes_accounted_); }

std::int64_t Stream::take_bytes_delta() {
  std::size_t bytes = log_.bytes_held();
  for (const ClientPtr& client : clients_) {
    if (client->renderer != nullptr && client->renderer->streams()) bytes += client->renderer->bytes_held();
  }
  const auto held = static_cast<std::int64_t>(bytes);
  return held - std::exchange(bytes_accounted_, held);
}

void Stream::tell_bytes(std::int64_t delta) {
  if (delta != 0) watcher_.on_bytes_held(identity_, delta);
}

void Stream::queued(const wire::QueuedEvent& event) {
  const std::lock_guard lock(mutex_);
  if (log_.finished()) return;
  log_.queued(event);
  pump_all(now_ms_);
}

void Stream::begin_attempt(bool is_held) {
  const std::lock_guard lock(mutex_);
  log_.begin_attempt();
  is_held_ = is_held;
}

void Stream::release() {
  const std::lock_guard lock(mutex_);
  is_held_ = false;
  pump_all(now_ms_);
}

void Stream::started(const wire::StartedEvent& event) {
  const std::lock_guard lock(mutex_);
  if (log_.sealed() || log_.finished()) return;
  log_.started(event);
  pump_all(now_ms_);
}

base::Result<> Stream::tokens(std::span<const TokenView> tokens, std::int64_t now_ms) {
  std::int64_t delta = 0;
  base::Result<> result;
  {
    const std::lock_guard lock(mutex_);
    for (const TokenView& token : tokens) {
      if (log_.finished()) break;
      result = log_.token(token);
      if (!result) break;
    }
    pump_all(now_ms);
    delta = take_bytes_delta();
  }
  tell_bytes(delta);
  return result;
}

void Stream::metrics(const wire::MetricsEvent& event, std::int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  if (log_.finished() || log_.sealed()) return;
  metrics_ = event;
  ++metrics_version_;
  pump_all(now_ms);
}

void Stream::seal() {
  const std::lock_guard lock(mutex_);
  if (log_.finished()) return;
  log_.seal();
  end_pause();
}

void Stream::finish(ReplayLog::Terminal terminal, std::int64_t now_ms) {
  std::int64_t delta = 0;
  {
    const std::lock_guard lock(mutex_);
    if (log_.finished()) return;
    log_.finish(std::move(terminal));
    is_held_ = false;
    finished_ms_ = now_ms;
    clients_gone_ms_.reset();
    pump_all(now_ms);
    end_pause();
    delta = take_bytes_delta();
  }
  tell_bytes(delta);
  watcher_.on_finished(identity_, now_ms);
}

void Stream::relay_paused(bool paused, std::int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  now_ms_ = std::max(now_ms_, now_ms);
  if (!paused) return end_pause();
  if (!paused_since_ms_ && !log_.sealed() && !log_.finished()) paused_since_ms_ = now_ms_;
}

void Stream::end_pause() {
  if (paused_since_ms_) paused_ms_ += now_ms_ - *paused_since_ms_;
  paused_since_ms_.reset();
}

std::int64_t Stream::paused_ms() const {
  const std::lock_guard lock(mutex_);
  return paused_ms_ + (paused_since_ms_ ? now_ms_ - *paused_since_ms_ : 0);
}

bool Stream::let_go(bool also_read) {
  std::int64_t delta = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!log_.finished() || answers_being_made_ > 0) return false;
    const bool is_read = std::ranges::any_of(clients_, [](const ClientPtr& client) { return !client->ended; });
    const bool is_answer_due =
        std::ranges::any_of(clients_, [](const ClientPtr& client) { return client->is_answer_due && !client->ended; });
    if (is_answer_due || (is_read && !also_read)) return false;
    for (const ClientPtr& client : clients_) {
      if (std::exchange(client->ended, true)) continue;
      client->exchange->abort();
      client->renderer = nullptr;
    }
    let_go_id_ = log_.terminal_id();
    log_.drop_tokens();
    delta = take_bytes_delta();
  }
  tell_bytes(delta);
  return true;
}

bool Stream::attach(const Reader& reader, std::int64_t now_ms) {
  ASSERT(reader.renderer != nullptr);
  const auto client = std::make_shared<Client>();
  client->exchange = reader.exchange;
  client->renderer = reader.renderer;
  client->headers = reader.headers;
  client->correlation_id = reader.correlation_id;
  client->cursor = streams::attach(reader.last_event_id);
  client->counts = !reader.observes;
  client->verbose = reader.verbose;
  client->goes_first = reader.goes_first;
  client->account = reader.account;
  client->last_write_ms = client->sent_changed_ms = now_ms;
  std::int64_t delta = 0;
  {
    const std::lock_guard lock(mutex_);
    now_ms_ = std::max(now_ms_, now_ms);
    if (let_go_id_) {  // it was found before
      client->exchange->respond_error(offset_gone(to_string(*let_go_id_), log_.seed()));
      return false;
    }
    if (!make_room_for(*client)) {
      client->exchange->respond_error(too_many_readers());
      return false;
    }
    clients_.push_back(client);
    clients_gone_ms_.reset();
    const bool has_all = log_.finished() && reader.last_event_id == log_.terminal_id();
    if (has_all && client->renderer->streams()) {
      client->ended = true;
      client->exchange->respond({.status = kNothingLeft, .headers = client->headers, .body = {}});
    } else if (client->renderer->streams()) {
      const Renderer::Head head = client->renderer->head();
      client->exchange->start_stream(head.status, with(head.headers, client->headers));
    } else {
      client->exchange->release_request();
    }
    pump(client, now_ms);
    delta = take_bytes_delta();
  }
  tell_bytes(delta);
  // Outside the lock: a client that is gone already is told on this thread.
  reader.exchange->on_close(
      [self = shared_from_this(), client](net::CloseReason reason) { self->on_closed(client, reason); });
  return true;
}

// A caller's connections are alike: of those that the network has cut and nobody has noticed the oldest is the first. Whoever only
// looks on gives way to a client that the job is for. False: that is the newest.
bool Stream::make_room_for(const Client& newest) {
  if (newest.goes_first) return true;
  const auto is_same = [&](const ClientPtr& client) {
    return !client->goes_first && client->account == newest.account;
  };
  if (static_cast<std::size_t>(std::ranges::count_if(clients_, is_same)) < kReadersMax) return true;
  auto leaves =
      std::ranges::find_if(clients_, [&](const ClientPtr& client) { return is_same(client) && !client->counts; });
  if (leaves == clients_.end()) {
    if (!newest.counts) return false;
    leaves = std::ranges::find_if(clients_, is_same);
  }
  const ClientPtr client = *leaves;
  clients_.erase(leaves);  // before its exchange says that it is closed
  if (!log_.finished()) had_clients_ = had_clients_ || client->counts;
  send_away(*client);
  return true;
}

// Bytes that it has not taken would be neither all nor followed by a word; else it is told.
void Stream::send_away(Client& client) {
  const bool has_answer = std::exchange(client.ended, true);
  if (has_answer || client.exchange->queued_bytes() > 0) return client.exchange->abort();
  if (!client.renderer->streams()) return void(client.exchange->respond_error(too_many_readers()));
  end_with(client, too_many_readers(), now_ms_);
}

// Ends a client's stream for a reason of its own. Where its format knows no such end, a connection that breaks off says that the
// stream is not whole.
void Stream::end_with(Client& client, const base::Error& error, std::int64_t now_ms) {
  client.ended = true;
  std::string& bytes = thread_bytes();
  client.renderer->error(wire::error_body(error, client.correlation_id), std::nullopt, bytes);
  if (bytes.empty()) return client.exchange->abort();
  write(client, bytes, now_ms);
  client.exchange->end();
}

bool Stream::begin_telling() {
  {
    const std::lock_guard lock(mutex_);
    if (is_telling_) return false;
    is_telling_ = true;
  }
  return wants_telling();
}

bool Stream::wants_telling() {
  const std::lock_guard lock(mutex_);
  is_telling_ =
      std::ranges::any_of(clients_, [](const ClientPtr& client) { return client->verbose && !client->ended; });
  return is_telling_;
}

void Stream::end_telling() {
  const std::lock_guard lock(mutex_);
  is_telling_ = false;
}

void Stream::pump_all(std::int64_t now_ms) {
  now_ms_ = std::max(now_ms_, now_ms);
  for (const ClientPtr& client : clients_) pump(client, now_ms_);
}

void Stream::pump(const ClientPtr& client, std::int64_t now_ms) {
  if (client->ended) return;
  if (!client->renderer->streams()) {
    if (!log_.finished() || std::exchange(client->is_answer_due, true)) return;
    return watcher_.on_answer_due(identity_, [self = shared_from_this(), client] { self->answer(client); });
  }
  const auto goes_before = [](const ClientPtr& other) {
    return other->goes_first && !other->ended && !other->renderer->streams();
  };
  if (is_held_ || (log_.finished() && std::ranges::any_of(clients_, goes_before))) return;
  while (!client->ended && !client->waits_for_drain) {
    if (client->exchange->queued_bytes() >= kQueuedBytesMax) {
      client->waits_for_drain = true;
      client->exchange->on_drain(kQueuedBytesLow, [self = shared_from_this(), client] { self->on_drained(client); });
      return;
    }
    std::string& bytes = thread_bytes();
    switch (advance(log_, client->cursor, *client->renderer, kWriteBytes, bytes)) {
      case Next::kMore: write(*client, bytes, now_ms); break;
      case Next::kWait: return pump_metrics(*client, now_ms);
      case Next::kDiverged: client->counts = false; return end_with(*client, diverged_error(), now_ms);
      case Next::kLast: return end_whole(*client, bytes, now_ms);
    }
  }
}

// `bytes`: the last of its stream.
void Stream::end_whole(Client& client, std::string_view bytes, std::int64_t now_ms) {
  client.ended = true;
  write(client, bytes, now_ms);
  client.exchange->end();
  client.renderer = nullptr;
}

// All that follows the terminal event, however much waits in the socket.
void Stream::send_rest(Client& client) {
  while (!client.ended) {
    std::string& bytes = thread_bytes();
    const Next next = advance(log_, client.cursor, *client.renderer, kWriteBytes, bytes);
    if (next == Next::kLast) return end_whole(client, bytes, now_ms_);
    if (next != Next::kMore) return client.exchange->abort();
    write(client, bytes, now_ms_);
  }
}

void Stream::pump_metrics(Client& client, std::int64_t now_ms) {
  if (client.cursor.last_event_id || client.metrics_seen == metrics_version_) return;
  client.metrics_seen = metrics_version_;
  std::string& bytes = thread_bytes();
  client.renderer->metrics(metrics_, bytes);
  write(client, bytes, now_ms);
}

// Makes the one answer of a client that does not read a stream. That may take seconds, so nobody waits for it: the log has ended, and
// only let_go() changes it, which leaves one alone of which an answer is being made.
void Stream::answer(const ClientPtr& client) {
  {
    const std::lock_guard lock(mutex_);
    if (client->ended || client->exchange->closed()) return;  // gone meanwhile
    ++answers_being_made_;
  }
  Next next = Next::kMore;
  try {
    std::string body;
    while (next == Next::kMore) next = advance(log_, client->cursor, *client->renderer, kWriteBytes, body);
    if (next == Next::kDiverged) {
      client->renderer->error(wire::error_body(diverged_error(), client->correlation_id), std::nullopt, body);
    }
    Renderer::Head head = client->renderer->head();
    client->exchange->respond(
        {.status = head.status, .headers = with(std::move(head.headers), client->headers), .body = std::move(body)});
  } catch (const std::exception&) {  // of a library, as where memory is short
    client->exchange->respond_error({base::ErrorCode::kInternal, "The answer failed inside a library.", {}});
  }
  std::shared_ptr<Renderer> done;  // holds as much as the answer
  const std::lock_guard lock(mutex_);
  --answers_being_made_;
  client->ended = true;
  client->counts = client->counts && next != Next::kDiverged;
  done = std::exchange(client->renderer, nullptr);
  if (client->goes_first) pump_all(now_ms_);
}

void Stream::write(Client& client, std::string_view bytes, std::int64_t now_ms) {
  if (bytes.empty()) return;
  if (client.exchange->queued_bytes() == 0) client.sent_changed_ms = now_ms;
  client.exchange->write(bytes);
  client.last_write_ms = now_ms;
}

void Stream::on_drained(const ClientPtr& client) {
  std::int64_t delta = 0;
  {
    const std::lock_guard lock(mutex_);
    client->waits_for_drain = false;
    pump(client, now_ms_);
    delta = take_bytes_delta();
  }
  tell_bytes(delta);
}

void Stream::on_closed(const ClientPtr& client, net::CloseReason reason) {
  bool gone = false, sent = false;
  std::int64_t delta = 0;
  {
    const std::lock_guard lock(mutex_);
    client->ended = true;
    if (std::erase(clients_, client) == 0) return;  // sent away before
    if (log_.finished()) {
      if (client->goes_first) pump_all(now_ms_);
      sent = reason == net::CloseReason::kFinished && client->counts;
      if (sent) sent_ms_ = now_ms_;
    } else if (had_clients_ = had_clients_ || client->counts; clients_.empty() && had_clients_) {
      if (identity_.on_disconnect == wire::OnDisconnect::kCancel) {
        gone = true;
      } else {
        clients_gone_ms_ = now_ms_;
      }
    }
    delta = take_bytes_delta();
  }
  tell_bytes(delta);
  if (gone) watcher_.on_clients_gone(identity_.job_id);
  if (sent) watcher_.on_sent_to_the_end(identity_.job_id);
}

bool Stream::is_stuck(Client& client, std::int64_t now_ms) const {
  const std::uint64_t sent = client.exchange->sent_bytes();
  if (sent != client.sent_bytes || client.exchange->queued_bytes() == 0) {
    client.sent_bytes = sent;
    client.sent_changed_ms = now_ms;
  }
  return now_ms - client.sent_changed_ms >= limits_.slow_client_timeout_ms;
}

std::optional<std::int64_t> Stream::tick(std::int64_t now_ms) {
  bool gone = false;
  const bool keeps_alive = limits_.keep_alive_ms > 0;
  std::int64_t due_ms = now_ms + limits_.keep_alive_ms;  // of a client that attaches now
  {
    const std::lock_guard lock(mutex_);
    now_ms_ = std::max(now_ms_, now_ms);
    for (const ClientPtr& client : clients_) {
      const bool waits = keeps_alive && !client->ended && client->renderer->streams();
      if (is_stuck(*client, now_ms)) {
        client->exchange->abort();
      } else if (waits && now_ms - client->last_write_ms >= limits_.keep_alive_ms) {
        std::string& bytes = thread_bytes();
        client->renderer->keep_alive(bytes);
        write(*client, bytes, now_ms);
        client->last_write_ms = now_ms;  // also if the format has no such bytes
      }
      if (waits) due_ms = std::min(due_ms, client->last_write_ms + limits_.keep_alive_ms);
    }
    gone = clients_gone_ms_ && now_ms - *clients_gone_ms_ >= limits_.reconnect_grace_ms;
    if (gone) clients_gone_ms_.reset();
  }
  if (gone) watcher_.on_clients_gone(identity_.job_id);
  if (!keeps_alive) return {};
  return due_ms;
}

void Stream::abort_clients() {
  const std::lock_guard lock(mutex_);
  for (const ClientPtr& client : clients_) {
    // One that has its terminal event is complete, one that came to it gets the rest, and one whose answer is due gets it.
    if (client->ended || client->is_answer_due) continue;
    if (client->cursor.has_ended) {
      send_rest(*client);
    } else {
      client->exchange->abort();
    }
  }
}

Stream::Progress Stream::progress() const {
  const std::lock_guard lock(mutex_);
  Progress p;
  p.tokens_count = log_.tokens_count();
  p.prompt_tokens_count = log_.prompt_tokens_count();
  p.finished = log_.finished();
  p.sealed = log_.sealed();
  p.clients_count = clients_.size();
  if (p.finished) {
    p.id = log_.terminal_id();
  } else if (log_.events_count() > 0) {
    p.id = log_.id_of(log_.events_count() - 1);
  }
  if (p.finished && clients_.empty()) {
    p.retain_until_ms = *finished_ms_ + limits_.retain_ms;
    // A client whose connection broke with the end in its socket comes back as any other does.
    if (sent_ms_) p.retain_until_ms = std::min(*p.retain_until_ms, *sent_ms_ + limits_.reconnect_grace_ms);
  }
  return p;
}

std::optional<std::string> Stream::error_code() const {
  const std::lock_guard lock(mutex_);
  const wire::ErrorBody* error = log_.error();
  return error == nullptr ? std::nullopt : std::optional(error->code);
}

EventId Stream::terminal_id() const {
  const std::lock_guard lock(mutex_);
  return log_.terminal_id();
}

base::Error with_pause(base::Error error, std::int64_t paused_ms) {
  if (error.code != base::ErrorCode::kTimeout || paused_ms <= 0) return error;
  error.message += fmt::format(
      " Its worker was paused for {} ms of that for want of memory for streams: those of its tenant held more than "
      "their share of orchestratord.stream.buffer_bytes_max, or all together three times as much. Read them as they "
      "come, or run fewer at a time.",
      paused_ms);
  return std::move(error).with("paused_ms", paused_ms);
}

}  // namespace llorch::orchestratord::streams
