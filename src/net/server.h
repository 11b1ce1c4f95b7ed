#pragma once
// HTTP server. Auth, correlation ids, limits, timeouts and error envelopes are built in; handlers see valid,
// authorised requests only.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http/auth.h"
#include "net/http/browser.h"
#include "net/http/error_response.h"
#include "net/http/message.h"
#include "net/io_runtime.h"

namespace llorch::net {

using http::Request;
using http::Response;
using http::Scope;

enum class CloseReason {
  kFinished,  // the whole response was handed to the kernel
  kPeerGone,  // the client closed, was reset, or let a finished response lie
  kAborted,   // abort(), or the server stopped
};

// One request waiting for its answer. Keep it and answer later from any thread: every member is thread-safe and none
// blocks. Either respond() once, or start_stream(), write() any number of times, end(). Members that answer return
// false and do nothing when the exchange is already answered or closed. If the last reference goes unanswered, the
// client gets INTERNAL; if it goes within a stream, the connection is aborted, so that a cut stream never looks
// complete.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual bool respond(Response response) = 0;
  // `error` with this request's correlation id, in the format of the request's path.
  virtual bool respond_error(const base::Error& error) = 0;

  // The handler holds nothing of the request's body any more and may take long to answer: until then, the exchange
  // counts as a connection and no longer as a request in flight.
  virtual void release_request() {}
  // The handler holds `bytes` more until then, for what it made of the request. SERVER_BUSY: there is no room; refuse it.
  virtual base::Result<> hold(std::size_t /*bytes*/) { return {}; }

  virtual bool start_stream(int status, http::Headers headers) = 0;
  // Queues bytes after all earlier ones. Never refuses for size: bound the queue with queued_bytes() and on_drain().
  virtual bool write(std::string_view bytes) = 0;
  virtual bool end() = 0;

  // Drops what is queued and closes the connection.
  virtual void abort() = 0;

  // Bytes the kernel has not taken yet.
  virtual std::size_t queued_bytes() const = 0;
  // Bytes the kernel has taken since the answer began; a slow client is one whose number stands still.
  virtual std::uint64_t sent_bytes() const = 0;
  virtual bool closed() const = 0;

  // Calls `fn` once, on the io thread, as soon as queued_bytes() <= low_water_bytes. A later call replaces a pending
  // one. Dropped without a call when the exchange closes.
  virtual void on_drain(std::size_t low_water_bytes, std::function<void()> fn) = 0;
  // Calls `fn` exactly once: on the io thread when the exchange closes, or at once on this thread if it has. A client
  // that goes away is noticed also while nothing is written. One callback per exchange: REQUIRES not called before.
  virtual void on_close(std::function<void(CloseReason)> fn) = 0;
};
using ExchangePtr = std::shared_ptr<Exchange>;

// Called on the io thread; must not block.
using Handler = std::function<void(Request request, ExchangePtr exchange)>;

// Decides, after the head was read and before the body is, whether this caller is served now. Runs on the io thread;
// must not block, and should cost little.
using HeadCheck = std::function<base::Result<>(const http::Principal& caller)>;

struct ServerOptions {
  std::string component;  // "orchestratord"; names the listener in messages and logs
  // The key of the configuration that says where it listens, "orchestratord.bind": to be changed where the port is taken. Empty: none.
  std::string bind_key;
  std::string bind_address = "127.0.0.1";
  std::uint16_t port = 0;  // 0 = chosen by the kernel, see Server::port()
  // A socket of the bind address that listens already and is the server's from start() on, whatever `port` says; negative: none.
  int listener_fd = -1;
  http::AuthRules auth;  // until set_auth()
  http::BrowserRules browsers;
  std::vector<http::Gateway> gateways;
  std::size_t connections_max = 16384;      // but at most three quarters of the descriptors that the process may have
  std::size_t request_bytes_max = 4 << 20;  // body; 413 past it
  // Of all requests that are not answered; past it the largest body of the caller that holds the most gets 503. As much again
  // for whole answers that clients take slowly; past it the largest answer of that caller is cut short.
  std::size_t request_bytes_in_flight_max = 256 << 20;
  std::size_t requests_in_flight_max = 16384;  // not answered, those included whose client has gone; 503 past it
  std::size_t header_bytes_max = 16 << 10;     // request line and fields; 431 past it
  std::int64_t request_timeout_ms = 15'000;    // from a request's first byte to its last; 408 past it
  std::int64_t idle_timeout_ms = 75'000;       // between requests of a connection
  // Limit for a finished response of which the client takes no bytes. A stream that goes on is bounded by its writer.
  std::int64_t write_stall_timeout_ms = 30'000;
  // That limit holds for streams that go on as well: nobody else watches their clients.
  bool cuts_stalled_streams = false;
  bool begins_traces = false;         // a request without one gets a trace; else it has none
  int send_buffer_bytes = 128 << 10;  // kernel buffer per connection; what bounds 10,000 slow readers
};

// What start() refuses of the options alone, before it touches the machine. Errors: NON_LOOPBACK_WITHOUT_TOKEN, CONFIG_INVALID
// (address, token).
base::Result<> check_options(const ServerOptions& options);

struct RouteInfo {
  std::string method;
  std::string pattern;
  Scope scope;
};

// REQUIRES: `runtime` outlives the server. Routes are added before start(). Not thread-safe itself; handlers run one at a
// time, on the io thread.
class Server {
 public:
  Server(IoRuntime& runtime, ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // stop(0)

  // `pattern`: literal segments and {name} for exactly one non-empty segment, e.g. "/v2/tasks/{id}/events". A literal
  // beats a parameter. A route of GET serves HEAD as well: the handler sees the method, and what it answers goes out without its
  // body. Callers whose role has no part in `scope` are refused (FORBIDDEN) before the handler runs. `check`, if there is one,
  // comes after that.
  // REQUIRES: the same method and pattern not added before.
  void route(std::string_view method, std::string_view pattern, Scope scope, Handler handler, HeadCheck check = {});
  // What route() was given, in its order.
  const std::vector<RouteInfo>& routes() const;

  // Whom later requests are checked against; those whose head was read go on. Thread-safe. REQUIRES: check_options() takes them.
  void set_auth(http::AuthRules rules);

  // Binds and accepts. Errors: NON_LOOPBACK_WITHOUT_TOKEN, CONFIG_INVALID (address, token), PORT_IN_USE, IO_ERROR.
  base::Result<> start();

  // The real port and "http://address:port". REQUIRES start() succeeded.
  std::uint16_t port() const;
  std::string url() const;

  // Stops accepting, closes idle connections, lets open exchanges finish for up to `grace_ms`, aborts the rest. When it
  // returns, no handler or callback runs or will run. Idempotent. REQUIRES: not on the io thread.
  void stop(std::int64_t grace_ms);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace llorch::net
