#pragma once
// The queue between whoever answers a request, on any thread, and the connection that writes, on the io thread.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "net/h1/request_budget.h"
#include "net/server.h"

namespace llorch::net::h1 {

// What the queue calls on its connection. None of these calls the exchange back.
class ConnectionPort {
 public:
  virtual ~ConnectionPort() = default;
  // True on the io thread while no earlier bytes wait.
  virtual bool can_write_now() const = 0;
  // How many bytes of `wire` the kernel takes at once; 0 also after an error, which the flush of what is queued instead
  // meets again. REQUIRES can_write_now().
  virtual std::size_t write_now(std::string_view wire) = 0;
  // Both only post to the io thread.
  virtual void flush_soon() = 0;
  virtual void abort_soon() = 0;
};

struct ExchangeInfo {
  base::CorrelationId correlation_id;
  bool keep_alive = true;
  bool is_http_1_0 = false;  // no chunks: a stream ends with its connection
  bool is_head = false;      // the answer has no body, whatever is answered
  http::Headers headers{};   // of the answer, besides its own
  http::ErrorWriter write_error = http::error_response;
};

class ExchangeState {
 public:
  ExchangeState(ExchangeInfo info, std::weak_ptr<ConnectionPort> port)
      : info_(std::move(info)), port_(std::move(port)) {}

  // For the answering side, see Exchange. Thread-safe.
  bool respond(Response response);
  bool respond_error(const base::Error& error);
  bool start_stream(int status, http::Headers headers);
  bool write(std::string_view bytes);
  bool end();
  void abort();
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn);
  void on_close(std::function<void(CloseReason)> fn);
  // The answering side has let go of the exchange.
  void abandon();
  std::size_t queued_bytes() const { return queued_; }
  std::uint64_t sent_bytes() const { return sent_; }
  bool closed() const;

  // For the connection. On the io thread only.
  struct Batch {
    std::string bytes;
    std::size_t begin = 0;  // the wire's bytes begin here
    bool is_last = false;   // nothing comes after it
    std::string_view wire() const { return std::string_view(bytes).substr(begin); }
  };
  // Everything queued, framed for the wire. `spent`: a buffer to queue into from now on, so that a stream of small writes
  // allocates nothing.
  Batch take(std::string spent = {});
  void sent(std::size_t bytes);
  bool ended() const;
  bool is_streaming() const;
  bool keep_alive() const;
  // The connection closes after this response. REQUIRES: on the io thread; has no effect on a head already queued.
  void forbid_keep_alive();
  // Calls on_close; every later call does nothing.
  void close(CloseReason reason);

 private:
  enum class Phase { kUnanswered, kStreaming, kEnded };
  void request_flush_locked();
  std::string head_locked(int status, http::Headers headers, std::optional<std::size_t> length) const;
  bool write_through_locked(std::string_view bytes);
  void queue_locked(std::string_view bytes);

  mutable std::mutex mutex_;
  ExchangeInfo info_;
  std::weak_ptr<ConnectionPort> port_;
  Phase phase_ = Phase::kUnanswered;
  bool chunked_ = false;
  bool flush_requested_ = false;
  std::optional<CloseReason> closed_;
  std::string framed_;   // as it goes on the wire, before what is pending: a head, the rest of a chunk
  std::string pending_;  // of a chunked body: room for the chunk's size, then the bytes
  std::atomic<std::size_t> queued_ = 0;
  std::atomic<std::uint64_t> sent_ = 0;
  std::size_t low_water_bytes_ = 0;
  std::function<void()> drain_;
  std::function<void(CloseReason)> close_fn_;
  bool close_fn_given_ = false;
};

// What the handler holds. `lease` ends with the answer.
ExchangePtr make_exchange(std::shared_ptr<ExchangeState> state, RequestLease lease);

}  // namespace llorch::net::h1
