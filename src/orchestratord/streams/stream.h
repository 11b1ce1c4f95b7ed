#pragma once
// One job's stream: the log, the clients that read it, and what a lost client means. Between them, nothing is rendered
// for a client but the bytes its socket can take.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "config/config.h"
#include "net/server.h"
#include "orchestratord/streams/renderer.h"
#include "orchestratord/streams/replay/replay_log.h"
#include "wire/task.h"

namespace llorch::orchestratord::streams {

// The status for a client that holds all of a stream already; one that asks again by itself, as browsers do, stops at it.
inline constexpr int kNothingLeft = 204;

// Thread-safe. Made by a StreamHub. No member blocks.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  struct Identity {
    base::JobId job_id;
    wire::OnDisconnect on_disconnect = wire::OnDisconnect::kCancel;
    std::string tenant_id;                              // the account that the job was submitted from
    std::uint64_t order = 0;                            // smaller is older
    std::atomic<std::int64_t>* tenant_bytes = nullptr;  // what all streams of the tenant hold; the hub's
  };
  // The hub's callbacks; called without a lock of the stream, but for what says otherwise.
  struct Watcher {
    virtual ~Watcher() = default;
    // Under the stream's lock: runs `make`, which makes a whole answer, on another thread and never within this call.
    virtual void on_answer_due(const Identity& identity, std::function<void()> make) = 0;
    virtual void on_bytes_held(const Identity& identity, std::int64_t delta) = 0;
    virtual void on_finished(const Identity& identity, std::int64_t now_ms) = 0;
    virtual void on_clients_gone(const base::JobId& job_id) = 0;
    // A client was sent everything; nobody can know whether it read it.
    virtual void on_sent_to_the_end(const base::JobId& job_id) = 0;
  };
  Stream(Identity identity, const config::StreamConfig& limits, Watcher& watcher);
  ~Stream();

  // ---- the writing side, see ReplayLog ----
  void queued(const wire::QueuedEvent& event);
  // `is_held`: clients are sent nothing more before release() or finish().
  void begin_attempt(bool is_held = false);
  void release();
  void started(const wire::StartedEvent& event);
  base::Result<> tokens(std::span<const TokenView> tokens, std::int64_t now_ms);
  // The newest counts; clients that lag behind miss some.
  void metrics(const wire::MetricsEvent& event, std::int64_t now_ms);
  void seal();
  void finish(ReplayLog::Terminal terminal, std::int64_t now_ms);
  // Its relay is slowed down for want of memory from now on, or goes on.
  void relay_paused(bool paused, std::int64_t now_ms);
  // How long that was. The same from seal() or finish() on.
  std::int64_t paused_ms() const;

  // ---- the reading side ----
  struct Reader {
    net::ExchangePtr exchange;
    std::shared_ptr<Renderer> renderer;  // REQUIRES not null, this client's own
    std::optional<EventId> last_event_id{};
    base::CorrelationId correlation_id{};  // of the request that reads
    net::http::Headers headers{};          // of the answer, besides the renderer's
    bool observes = false;                 // that it leaves, or has read all, changes nothing for the job
    std::string account{};                 // of the caller that reads
    bool verbose = false;                  // wants `metrics` to say what the job waits for
    // No client's, but a part of ours that has to have its answer before any client is told the end.
    bool goes_first = false;
  };
  // Answers the exchange with the stream from now until it ends, or once it has ended: as the renderer has it. A client that holds the
  // terminal event of a stream is answered kNothingLeft. False: the exchange was answered with an error: its tokens are held no more
  // (STREAM_OFFSET_GONE), or too many read it. Of more than kReadersMax clients of one account the one that came first has to leave, of
  // those that observe if there are any: who comes back before the loss of its connection is noticed finds a place.
  bool attach(const Reader& reader, std::int64_t now_ms);
  // Clients of one account. Each costs a write for each token, kUnsentBytesMax that it has not read, or a whole answer of its own. A
  // browser opens six connections to a server, and one more client or two look at a job at a time.
  static constexpr std::size_t kReadersMax = 8;
  // What waits for a client that reads slowly, and one event at most: the log holds the rest.
  static constexpr std::size_t kUnsentBytesMax = 64 << 10;

  // What the job waits for is told once, to all clients. True: a client wants it and nobody tells it; the caller does from now on, until
  // wants_telling() is false or it ends that itself.
  bool begin_telling();
  // Whether a client still wants it; if not, telling has ended.
  bool wants_telling();
  void end_telling();

  // Writes keep-alive comments, drops slow clients, ends the grace of a lost client. Returns when the next keep-alive
  // comment is due, if nothing is written until then; nullopt: never.
  std::optional<std::int64_t> tick(std::int64_t now_ms);
  // Gives back the memory of its tokens and cuts off the clients that wait for more of them; who attaches later gets
  // STREAM_OFFSET_GONE. False, and nothing happens: it is not finished, whole answers of it are still to be made, or a client waits and
  // not `also_read`.
  bool let_go(bool also_read);
  // Cuts off every client that waits for more; it can tell that the stream is not complete.
  void abort_clients();

  struct Progress {
    EventId id;  // of the newest numbered event, or the terminal one
    std::int64_t tokens_count = 0;
    std::int64_t prompt_tokens_count = 0;  // of these, that are the prompt's
    bool finished = false;
    bool sealed = false;
    std::size_t clients_count = 0;
    // Set for a finished stream that nobody reads: when its buffer may go.
    std::optional<std::int64_t> retain_until_ms;
  };
  Progress progress() const;
  EventId terminal_id() const;
  // Of the error that the job ended with; absent: it has not ended, or with none.
  std::optional<std::string> error_code() const;

  const Identity& identity() const { return identity_; }

 private:
  struct Client {
    net::ExchangePtr exchange;
    std::shared_ptr<Renderer> renderer;
    base::CorrelationId correlation_id;
    net::http::Headers headers;
    Cursor cursor;
    std::uint64_t metrics_seen = 0;
    bool waits_for_drain = false;
    bool ended = false;
    bool is_answer_due = false;  // of one that gets a whole answer: the job has ended
    bool counts = true;          // not one that observes, or whose last event id was refused
    bool verbose = false;
    bool goes_first = false;
    std::string account;
    std::int64_t last_write_ms = 0;
    std::uint64_t sent_bytes = 0;
    std::int64_t sent_changed_ms = 0;
  };
  using ClientPtr = std::shared_ptr<Client>;

  void pump_all(std::int64_t now_ms);
  void pump(const ClientPtr& client, std::int64_t now_ms);
  void pump_metrics(Client& client, std::int64_t now_ms);
  void end_pause();
  void answer(const ClientPtr& client);
  bool make_room_for(const Client& newest);
  void send_away(Client& client);
  void end_with(Client& client, const base::Error& error, std::int64_t now_ms);
  void end_whole(Client& client, std::string_view bytes, std::int64_t now_ms);
  void send_rest(Client& client);
  void write(Client& client, std::string_view bytes, std::int64_t now_ms);
  void on_drained(const ClientPtr& client);
  void on_closed(const ClientPtr& client, net::CloseReason reason);
  bool is_stuck(Client& client, std::int64_t now_ms) const;
  // What the log and the renderers hold more or less than when it was asked last; tell_bytes() is to be called with it, without the lock.
  std::int64_t take_bytes_delta();
  void tell_bytes(std::int64_t delta);

  const Identity identity_;
  const config::StreamConfig limits_;
  Watcher& watcher_;

  mutable std::mutex mutex_;
  ReplayLog log_;
  bool is_held_ = false;
  std::optional<EventId> let_go_id_;  // of its terminal event, once its tokens are gone
  bool is_telling_ = false;
  int answers_being_made_ = 0;  // of the finished log, without the lock
  std::vector<ClientPtr> clients_;
  wire::MetricsEvent metrics_;
  std::uint64_t metrics_version_ = 0;
  std::int64_t now_ms_ = 0;                      // the latest told
  bool had_clients_ = false;                     // one that counts came and went
  std::optional<std::int64_t> clients_gone_ms_;  // since when, while the job runs and somebody had been there
  std::optional<std::int64_t> finished_ms_;
  std::optional<std::int64_t> sent_ms_;  // when the kernel took the whole stream for a client
  std::optional<std::int64_t> paused_since_ms_;
  std::int64_t paused_ms_ = 0;  // before that
  std::int64_t bytes_accounted_ = 0;
};

using StreamPtr = std::shared_ptr<Stream>;

// A TIMEOUT of a job whose relay was paused for so long says so; any other error is as it was.
base::Error with_pause(base::Error error, std::int64_t paused_ms);

}  // namespace llorch::orchestratord::streams
