#pragma once
// One server connection of HTTP/1.1: reads requests, hands them out one at a time, writes the answers in order.
// Internal to net; includes Asio. Every member not marked otherwise runs on the io thread.
#include <memory>
#include <optional>
#include <string>

#include "base/log_limiter.h"
#include "net/asio_types.h"
#include "net/h1/connection_limit.h"
#include "net/h1/exchange.h"
#include "net/h1/request_budget.h"
#include "net/h1/wire.h"
#include "net/server.h"

namespace llorch::net::h1 {

class Connection;

// "127.0.0.1:80", "[::1]:80"
std::string text_of(const boost::asio::ip::tcp::endpoint& endpoint);

// What a connection needs of its server. Thread-safe.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const ServerOptions& options() const = 0;

  struct Admitted {
    const Handler* handler = nullptr;
    std::map<std::string, std::string, std::less<>> path_params;
    std::map<std::string, std::string, std::less<>> query_params;
    std::string path;
    http::Principal principal;
    http::Headers headers{};     // added to the answer's
    bool is_authorised = false;  // by a credential, or by a server that needs none: not on an open route alone
  };
  struct Refused {
    base::Error error;
    http::Headers headers{};      // added to the envelope's
    std::optional<int> status{};  // in place of the error's own
  };
  struct Head {
    std::string_view method;
    std::string_view target;
    const http::Headers* headers = nullptr;
    std::string_view peer_address;
    std::string_view local_address;
    const base::CorrelationId* correlation_id = nullptr;
  };
  // Decides on the head alone: limits, browsers, authorisation, route.
  virtual tl::expected<Admitted, Refused> admit(const Head& head) = 0;
  // One of each for all connections. On the io thread only.
  virtual RequestBudget& budget() = 0;
  virtual RequestBudget& answers() = 0;
  virtual ChunkPool& chunks() = 0;
  // An authorised request of the connection, of the caller `account`, is on its way, or is over. On the io thread only.
  virtual void request_began(Connection& connection, const std::string& account) = 0;
  virtual void request_ended(Connection& connection) = 0;
  // Of lines about answers that were cut short: clients decide how often. On the io thread only.
  virtual base::LogLimiter& cut_answer_lines() = 0;
  // The connection is closed and calls nothing any more.
  virtual void closed(Connection& connection) = 0;
};

class Connection final : public ConnectionPort,
                         public ConnectionLimit::Member,
                         private RequestBudget::Reader,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(TcpSocket socket, std::shared_ptr<ConnectionHost> host);

  // Thread-safe; each of these posts.
  void start();
  void flush_soon() override;
  void abort_soon() override;
  void drain_soon();
  bool can_write_now() const override;  // thread-safe as well
  std::size_t write_now(std::string_view wire) override;

  // Whether its answer is a stream that goes on.
  bool is_streaming() const { return exchange_ && exchange_->is_streaming(); }

  // Closes the socket and the open exchange. On the io thread, or anywhere once it has ended.
  void close(CloseReason reason);

 private:
  void drain();
  void wait_readable();
  void on_readable();
  void discard_readable();
  std::size_t read_bytes_max() const;
  void consume();
  void drop_read(std::size_t bytes);
  bool check_head();
  bool skip_body();
  bool hold_request();
  void give_way(const base::Error& error) override;
  void dispatch();
  bool is_head() { return parser_ && parser_->method() == "HEAD"; }
  http::ErrorWriter error_writer();
  void refuse(int status, const base::Error& error, const http::Headers& extra, bool keep_alive);
  void continue_if_expected();

  void flush();
  void finish_exchange();
  void hold_answer();
  void drop_answer();
  void linger();

  void set_deadline(std::int64_t delay_ms);
  void clear_deadline() { deadline_.reset(); }
  void watch_deadline();
  void on_deadline();

  using TimePoint = std::chrono::steady_clock::time_point;

  TcpSocket socket_;
  std::shared_ptr<ConnectionHost> host_;
  std::string peer_address_;
  std::string local_address_;

  // Reading. A parser exists from a request's first byte until it is handed out.
  std::string inbox_;
  std::optional<RequestParser> parser_;
  std::optional<ConnectionHost::Admitted> admitted_;
  base::CorrelationId correlation_id_;
  bool reading_ = false;

  // Writing. An exchange exists from then until its answer is written.
  std::shared_ptr<ExchangeState> exchange_;
  std::string out_;
  std::size_t out_offset_ = 0;
  bool out_is_last_ = false;
  bool write_waiting_ = false;
  // A whole answer on its way, once the kernel takes no more of it.
  struct Answer final : RequestBudget::Reader {
    explicit Answer(Connection& c) : connection(c) {}
    void give_way(const base::Error&) override { connection.drop_answer(); }
    Connection& connection;
  };
  Answer answer_{*this};
  std::string account_;  // of the caller that is answered

  // One timer wait at a time; a deadline that moves later costs nothing.
  SteadyTimer timer_;
  std::optional<TimePoint> deadline_;
  std::optional<TimePoint> watched_;

  bool draining_ = false;   // no request after this one
  bool lingering_ = false;  // answered for good; waits for the peer to close, so that it can read the answer
  bool closed_ = false;
};

}  // namespace llorch::net::h1
