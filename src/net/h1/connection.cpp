#include "net/h1/connection.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/asio/defer.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <span>

#include "base/entropy.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "net/http/trace_context.h"

namespace llorch::net::h1 {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64 << 10;  // of a body
constexpr int kReadsPerTurn = 16;             // then other connections get their turn
// Of a head, and pipelined behind a request: what any number of connections may keep, whatever the budget says.
constexpr std::size_t kInboxBytesMax = 4 << 10;
constexpr std::size_t kSmallAnswerBytes = 512 << 10;  // more than the writer of a stream may queue
constexpr std::int64_t kLingerMs = 1000;              // one round trip and a close, on any network in use

// One for all connections of the thread: an idle connection holds no read buffer.
std::span<char> read_buffer() {
  thread_local std::array<char, kReadBytes> buffer;
  return buffer;
}

// Nothing is written to it, so it takes no memory.
std::span<char> nowhere() {
  static char bytes[1 << 20];
  return bytes;
}

bool would_block(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

}  // namespace

std::string text_of(const asio::ip::tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

Connection::Connection(TcpSocket socket, std::shared_ptr<ConnectionHost> host)
    : socket_(std::move(socket)), host_(std::move(host)), timer_(socket_.get_executor()) {}

void Connection::start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->closed_) return;
    error_code error;  // a socket that is already dead shows at the first read
    const auto endpoint = self->socket_.remote_endpoint(error);
    self->peer_address_ = error ? "unknown" : text_of(endpoint);
    const auto local = self->socket_.local_endpoint(error);
    self->local_address_ = error ? "unknown" : text_of(local);
    self->socket_.non_blocking(true, error);
    self->socket_.set_option(asio::ip::tcp::no_delay(true), error);
    self->socket_.set_option(asio::socket_base::keep_alive(true), error);
    self->socket_.set_option(asio::socket_base::send_buffer_size(self->host_->options().send_buffer_bytes), error);
    self->set_deadline(self->host_->options().idle_timeout_ms);
    self->wait_readable();
  });
}

bool Connection::can_write_now() const {
  return const_cast<TcpSocket&>(socket_).get_executor().running_in_this_thread() && !closed_ && !write_waiting_ &&
         out_offset_ == out_.size();
}

std::size_t Connection::write_now(std::string_view wire) {
  error_code error;
  return socket_.write_some(asio::buffer(wire.data(), wire.size()), error);
}

void Connection::flush_soon() {
  asio::defer(socket_.get_executor(), [self = shared_from_this()] { self->flush(); });
}

void Connection::abort_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(CloseReason::kAborted); });
}

void Connection::drain_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->drain(); });
}

void Connection::drain() {
  draining_ = true;
  if (exchange_) {
    exchange_->forbid_keep_alive();
  } else if (!parser_ && !lingering_) {
    close(CloseReason::kFinished);
  }
}

void Connection::close(CloseReason reason) {
  if (closed_) return;
  closed_ = true;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  host_->budget().forget(*this);
  host_->answers().forget(answer_);
  parser_.reset();    // what is no longer counted is no longer held
  struct Departure {  // also where a callback throws: the server waits for all to go
    Connection& connection;
    ~Departure() { connection.host_->closed(connection); }
  };
  const Departure departure{*this};
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->close(reason);
}

// --- reading ---

void Connection::wait_readable() {
  if (reading_ || closed_) return;
  reading_ = true;
  socket_.async_wait(TcpSocket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->reading_ = false;
    if (self->closed_) return;
    if (error) {
      self->close(CloseReason::kPeerGone);
    } else {
      self->on_readable();
    }
  });
}

void Connection::on_readable() {
  for (int i = 0; i < kReadsPerTurn; ++i) {
    if (lingering_) return discard_readable();
    if (exchange_ && inbox_.size() >= kInboxBytesMax) return;  // finish_exchange() reads on
    const std::span<char> buffer = read_buffer().first(read_bytes_max());
    error_code error;
    const std::size_t bytes = socket_.read_some(asio::buffer(buffer.data(), buffer.size()), error);
    if (would_block(error)) break;
    if (error) return close(CloseReason::kPeerGone);
    inbox_.append(buffer.data(), bytes);
    consume();
    if (closed_) return;
    if (bytes < buffer.size()) break;  // that was all; the wait looks again
  }
  wait_readable();
}

// The kernel drops what comes without copying it: a refused body costs little.
void Connection::discard_readable() {
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const std::span<char> buffer = nowhere();
    error_code error;
    socket_.receive(asio::buffer(buffer.data(), buffer.size()), MSG_TRUNC, error);
    if (would_block(error)) break;
    if (error) return close(CloseReason::kPeerGone);
  }
  wait_readable();
}

std::size_t Connection::read_bytes_max() const {
  if (exchange_) return kInboxBytesMax - inbox_.size();
  if (!admitted_) return kInboxBytesMax;
  return std::clamp(parser_->body_bytes_missing().value_or(0), kInboxBytesMax, kReadBytes);
}

void Connection::consume() {
  while (!inbox_.empty() && !exchange_ && !lingering_ && !closed_) {
    if (!parser_) {
      parser_.emplace(ParserLimits{.header_bytes_max = host_->options().header_bytes_max,
                                   .body_bytes_max = host_->options().request_bytes_max},
                      host_->chunks());
      correlation_id_ = {};
      set_deadline(host_->options().request_timeout_ms);
    }
    const auto step = parser_->feed(inbox_);
    if (!step) return refuse(step.error().http_status, step.error().error, {}, false);
    drop_read(step->consumed);
    if (step->status != ParseStatus::kNeedMore && !admitted_ && !check_head()) return;
    const bool goes_on = step->status == ParseStatus::kHead && !inbox_.empty();
    if (!goes_on && !hold_request()) return;
    if (step->status == ParseStatus::kNeedMore) return;
    if (step->status == ParseStatus::kHead) continue_if_expected();
    if (step->status == ParseStatus::kDone) dispatch();
  }
}

// Idle connections, and those in the middle of a body, hold no buffer.
void Connection::drop_read(std::size_t bytes) {
  inbox_.erase(0, bytes);
  inbox_.shrink_to_fit();
}

bool Connection::check_head() {
  base::SystemEntropy entropy;
  correlation_id_ = http::correlation_id_or_new(parser_->headers().get(http::kCorrelationHeader), entropy);
  correlation_id_.trace = http::trace_context(parser_->headers());
  if (!correlation_id_.trace && host_->options().begins_traces) correlation_id_.trace = http::new_trace(entropy);
  if (!parser_->is_http_1_0() && parser_->headers().count("Host") != 1) {
    refuse(400, base::Error{base::ErrorCode::kInvalidParams, "HTTP/1.1 needs exactly one Host header", {}}, {}, false);
    return false;
  }
  auto admitted = host_->admit({.method = parser_->method(),
                                .target = parser_->target(),
                                .headers = &parser_->headers(),
                                .peer_address = peer_address_,
                                .local_address = local_address_,
                                .correlation_id = &correlation_id_});
  if (!admitted) {
    const base::Error& error = admitted.error().error;
    // The unread body of a refused request would be taken for the next request.
    const bool keep_alive = parser_->keep_alive() && !parser_->is_http_1_0() && skip_body();
    const int status = admitted.error().status.value_or(base::info(error.code).http_status);
    refuse(status, error, admitted.error().headers, keep_alive);
    return false;
  }
  admitted_ = std::move(*admitted);
  if (admitted_->is_authorised) host_->request_began(*this, admitted_->principal.account);
  host_->budget().forget(*this);
  return true;
}

// Whether the body of a refused request is over: it has none, or all of it has come.
bool Connection::skip_body() {
  if (parser_->complete()) return true;
  const auto missing = parser_->body_bytes_missing();
  if (!missing || *missing > inbox_.size()) return false;
  drop_read(*missing);
  return true;
}

// What is read of a request counts: as nobody's until its head was accepted, then as its caller's.
bool Connection::hold_request() {
  static const std::string kNobody;
  if (admitted_ && parser_->complete() && parser_->body().empty()) return true;
  const std::size_t bytes = (admitted_ ? parser_->memory_bytes() : 0) + inbox_.capacity();
  if (!admitted_ && bytes <= kInboxBytesMax) return true;
  const auto held = host_->budget().hold(*this, admitted_ ? admitted_->principal.account : kNobody, bytes);
  if (!held) give_way(held.error());
  return held.has_value();
}

void Connection::give_way(const base::Error& error) { refuse(base::info(error.code).http_status, error, {}, false); }

void Connection::continue_if_expected() {
  const auto expect = parser_->headers().get("Expect");
  if (!expect || !http::equals_ignoring_case(*expect, "100-continue")) return;
  // Nothing else is in flight, so the kernel has room; a client that misses it sends its body after a while anyway.
  error_code ignored;
  socket_.write_some(asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), ignored);
}

void Connection::dispatch() {
  auto lease = host_->budget().hand_over(*this);
  if (!lease) return give_way(lease.error());
  clear_deadline();
  const ExchangeInfo info{.correlation_id = correlation_id_,
                          .keep_alive = parser_->keep_alive() && !parser_->is_http_1_0() && !draining_,
                          .is_http_1_0 = parser_->is_http_1_0(),
                          .is_head = is_head(),
                          .headers = std::move(admitted_->headers),
                          .write_error = error_writer()};
  account_ = admitted_->principal.account;
  Request request{.method = std::move(parser_->method()),
                  .path = std::move(admitted_->path),
                  .path_params = std::move(admitted_->path_params),
                  .query_params = std::move(admitted_->query_params),
                  .headers = std::move(parser_->headers()),
                  .body = std::move(parser_->body()),
                  .correlation_id = correlation_id_,
                  .peer = {peer_address_, std::move(admitted_->principal)}};
  const Handler& handler = *admitted_->handler;
  parser_.reset();
  admitted_.reset();
  exchange_ = std::make_shared<ExchangeState>(info, weak_from_this());
  const std::shared_ptr<ExchangeState> exchange = exchange_;
  try {
    handler(std::move(request), make_exchange(exchange, *std::move(lease)));
  } catch (const std::exception&) {  // of a library; ours are values
    base::log_event(base::LogLevel::kError, "http.handler_failed", correlation_id_, "A request handler failed.",
                    {{"type", base::current_exception_type()}});
    exchange->respond_error(base::Error{base::ErrorCode::kInternal, "the request failed inside the server", {}});
  }
}

// Of the request that is being read.
http::ErrorWriter Connection::error_writer() {
  const std::string_view target = parser_ ? parser_->target() : std::string_view();
  const http::Gateway* gateway = http::gateway_of(host_->options().gateways, target);
  return gateway == nullptr ? http::error_response : gateway->write_error;
}

// Answers without a handler. Without keep_alive the rest of what the client sends is read and dropped.
void Connection::refuse(int status, const base::Error& error, const http::Headers& extra, bool keep_alive) {
  if (correlation_id_.empty()) {
    base::SystemEntropy entropy;
    correlation_id_ = base::CorrelationId(base::uuid_v4(entropy));
  }
  Response response = error_writer()(error, correlation_id_);
  response.status = status;
  for (const auto& [name, value] : extra.fields()) response.headers.set(name, value);
  exchange_ = std::make_shared<ExchangeState>(
      ExchangeInfo{.correlation_id = correlation_id_, .keep_alive = keep_alive && !draining_, .is_head = is_head()},
      weak_from_this());
  parser_.reset();
  admitted_.reset();
  host_->budget().forget(*this);
  if (!keep_alive) std::string().swap(inbox_);
  clear_deadline();
  exchange_->respond(std::move(response));
}

// --- writing ---

void Connection::flush() {
  if (closed_ || !exchange_) return;
  while (!write_waiting_) {
    if (out_offset_ == out_.size()) {
      if (out_is_last_) return finish_exchange();
      ExchangeState::Batch batch = exchange_->take(std::move(out_));
      out_ = std::move(batch.bytes);
      out_offset_ = batch.begin;
      out_is_last_ = batch.is_last;
      if (out_offset_ == out_.size()) {
        exchange_->sent(0);  // an on_drain() that came when the queue was low already
        if (!out_is_last_) return;
        continue;
      }
    }
    error_code error;
    const std::size_t bytes =
        socket_.write_some(asio::buffer(out_.data() + out_offset_, out_.size() - out_offset_), error);
    if (would_block(error)) {
      write_waiting_ = true;
      socket_.async_wait(TcpSocket::wait_write, [self = shared_from_this()](const error_code& failed) {
        self->write_waiting_ = false;
        if (self->closed_) return;
        self->clear_deadline();
        if (failed) {
          self->close(CloseReason::kPeerGone);
        } else {
          self->flush();
        }
      });
    } else if (error) {
      return close(CloseReason::kPeerGone);
    } else {
      out_offset_ += bytes;
      exchange_->sent(bytes);
    }
  }
  const bool is_ended = exchange_->ended();
  if (!deadline_ && (is_ended || host_->options().cuts_stalled_streams)) {
    set_deadline(host_->options().write_stall_timeout_ms);
  }
  if (is_ended) hold_answer();
}

// The writers of streams bound what waits for a slow client; nobody does that for a whole answer.
void Connection::hold_answer() {
  if (out_offset_ > out_.size() / 2) {  // what was taken is no longer held
    out_.erase(0, out_offset_);
    out_.shrink_to_fit();
    out_offset_ = 0;
  }
  if (out_.capacity() <= kSmallAnswerBytes) return host_->answers().forget(answer_);
  // One alone fits, whatever its size.
  const std::size_t bytes = std::min(out_.capacity(), host_->options().request_bytes_in_flight_max);
  if (!host_->answers().hold(answer_, account_, bytes)) drop_answer();
}

void Connection::drop_answer() {
  if (const auto left_out = host_->cut_answer_lines().admit(base::SystemClock().now().mono_ms)) {
    base::log_event(base::LogLevel::kWarn, "http.answer_dropped", correlation_id_,
                    "Answers that clients have not taken yet need too much memory; the largest is cut short.",
                    {{"account", account_}, {"bytes", out_.capacity()}, {"left_out_before", *left_out}});
  }
  close(CloseReason::kPeerGone);
}

void Connection::finish_exchange() {
  const std::shared_ptr<ExchangeState> exchange = std::exchange(exchange_, nullptr);
  host_->answers().forget(answer_);
  std::string().swap(out_);
  out_offset_ = 0;
  out_is_last_ = false;
  host_->request_ended(*this);
  const bool keep_alive = exchange->keep_alive() && !draining_;
  if (keep_alive) {
    set_deadline(host_->options().idle_timeout_ms);
  } else {
    linger();
  }
  exchange->close(CloseReason::kFinished);
  consume();
  wait_readable();
}

void Connection::linger() {
  lingering_ = true;
  std::string().swap(inbox_);
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  set_deadline(kLingerMs);
}

// --- deadlines ---

void Connection::set_deadline(std::int64_t delay_ms) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms);
  if (!watched_ || *watched_ > *deadline_) watch_deadline();
}

void Connection::watch_deadline() {
  watched_ = *deadline_;
  timer_.expires_at(*watched_);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->closed_) return;  // replaced by an earlier one, or closed
    self->watched_.reset();
    if (!self->deadline_) return;
    if (*self->deadline_ > std::chrono::steady_clock::now()) {
      self->watch_deadline();
    } else {
      self->deadline_.reset();
      self->on_deadline();
    }
  });
}

void Connection::on_deadline() {
  if (exchange_) return close(CloseReason::kPeerGone);
  if (!parser_) return close(CloseReason::kFinished);
  refuse(408,
         base::Error{base::ErrorCode::kInvalidParams,
                     fmt::format("the request was not complete after {} ms; send it faster",
                                 host_->options().request_timeout_ms),
                     {}},
         {}, false);
}

}  // namespace llorch::net::h1
