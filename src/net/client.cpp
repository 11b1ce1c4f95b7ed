#include "net/client.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "base/entropy.h"
#include "net/h1/wire.h"
#include "net/http/trace_context.h"
#include "net/idle_connections.h"
#include "net/live_set.h"
#include "net/lookups.h"

namespace llorch::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using base::ErrorCode;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kReadsPerTurn = 16;
constexpr std::size_t kResponseHeaderBytesMax = 64 << 10;
constexpr std::size_t kKeptBytes = 1 << 10;                  // of a stream's body buffer between two reads
constexpr std::chrono::milliseconds kNextAddressAfter{250};  // RFC 8305, section 5

bool would_block(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

base::Error failure(ErrorCode code, std::string_view host, std::string_view stage, std::string_view why) {
  return base::Error{code, fmt::format("{}: {}", host, why), {}}.with("stage", std::string(stage));
}

}  // namespace

// One request, from connecting to the end of its response. Everything but the control members runs on the io thread.
class StreamHandle::Impl final : public StreamHandle::Control, public std::enable_shared_from_this<StreamHandle::Impl> {
 public:
  using Live = LiveSet<StreamHandle::Impl>;

  struct Start {
    ClientRequest request;
    StreamCallbacks callbacks;
    bool is_whole = false;  // the callbacks collect the body: it and the whole time are limited
  };
  struct Shared {
    std::shared_ptr<Live> live;
    std::shared_ptr<IdleConnections> idle;
    std::shared_ptr<Lookups> lookups;
  };
  Impl(IoRuntime& runtime, const ClientOptions& options, Start start, Shared shared)
      : options_(options),
        request_(std::move(start.request)),
        callbacks_(std::move(start.callbacks)),
        is_whole_(start.is_whole),
        shared_(std::move(shared)),
        socket_(runtime.context().get_executor()),
        timer_(socket_.get_executor()) {}

  // Thread-safe; each posts.
  void start() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->connect(); });
  }
  void cancel_soon() override {
    cancelled_ = true;
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->cancel(); });
  }
  void pause() override { paused_ = true; }
  void resume() override {
    paused_ = false;
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (self->head_done_) self->restart_idle_deadline();
      self->wait_readable();
    });
  }

  // On the io thread, or anywhere once it has ended.
  void cancel() {
    cancelled_ = true;
    finish({});
  }

 private:
  // --- connecting ---

  void connect() {
    if (finished_) return;
    auto url = http::parse_url(request_.url);
    if (!url) return finish(base::fail(url.error()));
    url_ = std::move(*url);
    started_ = std::chrono::steady_clock::now();
    if (auto idle = shared_.idle->take(url_.host_field)) {
      socket_ = std::move(*idle);
      return send();
    }
    set_deadline(std::min(options_.connect_timeout_ms, timeout_ms()));
    error_code not_numeric;
    const asio::ip::address address = asio::ip::make_address(url_.host, not_numeric);
    if (!not_numeric) return connect_to({tcp::endpoint(address, url_.port)});
    shared_.lookups->find(url_.host, [weak = weak_from_this()](const error_code& error, const auto& addresses) {
      const auto self = weak.lock();
      if (!self || self->finished_) return;
      if (error) return self->fail_connect(error);
      std::vector<tcp::endpoint> endpoints;
      for (const asio::ip::address& each : addresses) endpoints.emplace_back(each, self->url_.port);
      self->connect_to(std::move(endpoints));
    });
  }

  // An address that nothing answers from, as where IPv6 is filtered, holds up no other: the next one is tried beside it, and the
  // first that answers is taken.
  void connect_to(std::vector<tcp::endpoint> endpoints) {
    if (endpoints.empty()) return fail_connect(asio::error::not_found);
    untried_ = std::move(endpoints);
    std::ranges::reverse(untried_);
    try_next();
  }

  // REQUIRES: an address is untried.
  void try_next() {
    const tcp::endpoint endpoint = untried_.back();
    untried_.pop_back();
    const auto socket = attempts_.emplace_back(std::make_shared<TcpSocket>(socket_.get_executor()));
    socket->async_connect(
        endpoint, [self = shared_from_this(), socket](const error_code& error) { self->attempted(socket, error); });
    if (untried_.empty()) return;
    if (!next_attempt_) next_attempt_.emplace(socket_.get_executor());
    next_attempt_->expires_after(kNextAddressAfter);
    next_attempt_->async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && !self->untried_.empty()) self->try_next();
    });
  }

  void attempted(const std::shared_ptr<TcpSocket>& socket, const error_code& error) {
    if (finished_ || connected_) return;
    std::erase(attempts_, socket);
    if (error && !untried_.empty()) return try_next();
    if (error && !attempts_.empty()) return;
    if (error) return fail_connect(error);
    end_attempts();
    socket_ = std::move(*socket);
    connected();
  }

  void end_attempts() {
    untried_.clear();
    next_attempt_.reset();
    error_code ignored;
    for (const auto& socket : std::exchange(attempts_, {})) socket->close(ignored);
  }

  void fail_connect(const error_code& error) {
    finish(base::fail(failure(ErrorCode::kUnreachable, url_.host_field, "connect",
                              error.message() + "; check that the daemon runs and listens there")));
  }

  void connected() {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(tcp::no_delay(true), ignored);
    send();
  }

  void send() {
    connected_ = true;
    set_deadline(started_ + std::chrono::milliseconds(timeout_ms()));
    http::Headers headers = std::move(request_.headers);
    if (!request_.bearer.empty()) headers.set("Authorization", "Bearer " + request_.bearer);
    if (!request_.correlation_id.empty()) {
      headers.set(http::kCorrelationHeader, request_.correlation_id.value);
    }
    if (request_.correlation_id.trace) {
      base::SystemEntropy entropy;
      http::set_trace_context(headers, *request_.correlation_id.trace, entropy);
    }
    // Servers of ours take no other body.
    if (!request_.body.empty() && !headers.get("Content-Type")) headers.add("Content-Type", "application/json");
    out_ = h1::write_head(h1::RequestHead{.method = request_.method,
                                          .target = url_.target,
                                          .host = url_.host_field,
                                          .headers = &headers,
                                          .content_length = request_.body.size()});
    out_ += std::exchange(request_.body, {});
    write();
    wait_readable();
  }

  // --- writing ---

  void write() {
    while (out_offset_ < out_.size() && !finished_) {
      error_code error;
      const std::size_t bytes =
          socket_.write_some(asio::buffer(out_.data() + out_offset_, out_.size() - out_offset_), error);
      if (would_block(error)) {
        socket_.async_wait(TcpSocket::wait_write, [self = shared_from_this()](const error_code&) { self->write(); });
        return;
      }
      if (error) break;  // a server may answer and close before it has read all: the reader finds out
      out_offset_ += bytes;
    }
    std::string().swap(out_);  // an assignment would keep the memory
    out_offset_ = 0;
  }

  // --- reading ---

  void wait_readable() {
    if (reading_ || finished_ || !connected_ || paused_) return;
    reading_ = true;
    if (head_done_) restart_idle_deadline();
    socket_.async_wait(TcpSocket::wait_read, [self = shared_from_this()](const error_code&) {
      self->reading_ = false;
      self->on_readable();
    });
  }

  void on_readable() {
    for (int i = 0; i < kReadsPerTurn && !finished_ && !paused_; ++i) {
      thread_local std::array<char, kReadBytes> buffer;
      error_code error;
      const std::size_t bytes = socket_.read_some(asio::buffer(buffer), error);
      if (would_block(error)) break;
      if (error) return on_connection_end(error);
      if (inbox_.empty()) {
        inbox_ = parse({buffer.data(), bytes});
      } else {
        inbox_.append(buffer.data(), bytes);
        inbox_.erase(0, inbox_.size() - parse(inbox_).size());
      }
      if (bytes < buffer.size()) break;  // that was all; the wait looks again
    }
    wait_readable();
  }

  // Returns what does not make a whole element yet.
  std::string_view parse(std::string_view bytes) {
    while (!bytes.empty() && !finished_) {
      const auto step = parser_.feed(bytes);
      if (!step) {
        fail_parse(step.error());
        return {};
      }
      bytes.remove_prefix(step->consumed);
      const bool done = step->status == h1::ParseStatus::kDone;
      if (done && parser_.status() / 100 == 1) {  // 100 Continue and its like precede the response
        parser_ = h1::ResponseParser(limits());
        continue;
      }
      if (!head_done_ && step->status != h1::ParseStatus::kNeedMore) on_head();
      deliver();
      if (done) {
        reusable_ = bytes.empty() && out_.empty() && parser_.keep_alive() && !cancelled_;
        finish({});
        return {};
      }
      if (step->status == h1::ParseStatus::kNeedMore) break;
    }
    return bytes;
  }

  void on_head() {
    head_done_ = true;
    if (callbacks_.on_response && !cancelled_) callbacks_.on_response(parser_.status(), parser_.headers());
    parser_.headers() = {};
  }

  void deliver() {
    std::string& body = parser_.body();
    if (!body.empty() && callbacks_.on_data && !cancelled_) callbacks_.on_data(body);
    body.clear();
    if (body.capacity() > kKeptBytes) std::string().swap(body);
  }

  void on_connection_end(const error_code& error) {
    if (error != asio::error::eof) return fail_read("response", error.message());
    const base::Result<> complete = parser_.finish();
    if (!complete) return fail_read("response", complete.error().message);
    finish({});
  }

  void fail_read(std::string_view stage, std::string_view why) {
    finish(base::fail(failure(ErrorCode::kIoError, url_.host_field, stage, why)));
  }

  void fail_parse(const h1::WireError& error) {
    if (error.error.code == ErrorCode::kPayloadTooLarge) {
      finish(base::fail(failure(ErrorCode::kPayloadTooLarge, url_.host_field, "response", error.error.message)));
    } else {
      fail_read("response", error.error.message);
    }
  }

  h1::ParserLimits limits() const {
    return {.header_bytes_max = kResponseHeaderBytesMax,
            .body_bytes_max = is_whole_ ? options_.response_bytes_max : SIZE_MAX};
  }

  // --- deadlines and the end ---

  std::int64_t timeout_ms() const {
    return request_.timeout_ms > 0 ? request_.timeout_ms : options_.request_timeout_ms;
  }

  // Whole responses keep the deadline of the request; streams have one for silence only.
  void restart_idle_deadline() {
    if (is_whole_) return;
    if (request_.idle_timeout_ms > 0) {
      set_deadline(request_.idle_timeout_ms);
    } else {
      deadline_.reset();
    }
  }

  void set_deadline(std::int64_t delay_ms) {
    set_deadline(std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms));
  }

  void set_deadline(std::chrono::steady_clock::time_point deadline) {
    deadline_ = deadline;
    if (!watched_ || *watched_ > *deadline_) watch_deadline();
  }

  void watch_deadline() {
    watched_ = *deadline_;
    timer_.expires_at(*watched_);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (error || self->finished_) return;
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

  void on_deadline() {
    if (head_done_ && paused_) return;  // resume() starts it again
    if (!connected_) {
      finish(base::fail(failure(ErrorCode::kUnreachable, url_.host_field, "connect",
                                "no connection in time; check the address and that nothing filters it")));
    } else {
      finish(base::fail(failure(ErrorCode::kTimeout, url_.host_field, head_done_ ? "body" : "response",
                                "connected, but no answer in time")));
    }
  }

  void finish(base::Result<> result) {
    if (finished_) return;
    finished_ = true;
    timer_.cancel();
    end_attempts();
    if (reusable_) {
      shared_.idle->give(url_.host_field, std::move(socket_));
    } else {
      error_code ignored;
      socket_.close(ignored);
    }
    if (cancelled_) result = base::fail(ErrorCode::kCancelled, "the request was cancelled by its sender");
    const Departure departure{*this};
    if (callbacks_.on_end) callbacks_.on_end(std::move(result));
  }

  // Also where the last callback throws: what callbacks hold must not outlive the client, and the client waits for all to go.
  struct Departure {
    Impl& operation;
    ~Departure() {
      operation.callbacks_ = {};
      operation.shared_.live->remove(&operation);
    }
  };

  const ClientOptions options_;
  ClientRequest request_;
  StreamCallbacks callbacks_;
  const bool is_whole_;
  const Shared shared_;
  http::Url url_;

  // Until one of them is socket_.
  std::vector<std::shared_ptr<TcpSocket>> attempts_;
  std::vector<tcp::endpoint> untried_;  // the next one at the end
  std::optional<SteadyTimer> next_attempt_;

  TcpSocket socket_;
  SteadyTimer timer_;
  std::chrono::steady_clock::time_point started_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::optional<std::chrono::steady_clock::time_point> watched_;  // what timer_ waits for

  std::string out_;
  std::size_t out_offset_ = 0;
  std::string inbox_;
  h1::ResponseParser parser_{limits()};

  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> paused_ = false;
  bool connected_ = false;
  bool head_done_ = false;
  bool reading_ = false;
  bool reusable_ = false;  // the connection, for the next request
  bool finished_ = false;
};

void StreamHandle::cancel() {
  if (const auto control = control_.lock()) control->cancel_soon();
}
void StreamHandle::pause() {
  if (const auto control = control_.lock()) control->pause();
}
void StreamHandle::resume() {
  if (const auto control = control_.lock()) control->resume();
}

class Client::Impl {
 public:
  Impl(IoRuntime& runtime, ClientOptions options)
      : runtime_(runtime),
        options_(std::move(options)),
        shared_{.live = std::make_shared<StreamHandle::Impl::Live>(),
                .idle = std::make_shared<IdleConnections>(runtime.context().get_executor()),
                .lookups = std::make_shared<Lookups>(runtime.context())} {}

  StreamHandle start(StreamHandle::Impl::Start start) {
    auto operation = std::make_shared<StreamHandle::Impl>(runtime_, options_, std::move(start), shared_);
    const bool added = shared_.live->add(operation);
    ASSERT(added, "the client is being destroyed");
    runtime_.count_request();
    operation->start();
    return StreamHandle(operation);
  }

  void shut_down() {
    ASSERT(!runtime_.on_io_thread());
    for (const auto& operation : shared_.live->close()) {
      if (runtime_.stopped()) {
        operation->cancel();
      } else {
        operation->cancel_soon();
      }
    }
    shared_.live->wait_empty();
    shared_.lookups->close();  // a cancelled operation's timer may keep them until the runtime is destroyed
  }

  bool on_io_thread() const { return runtime_.on_io_thread(); }

 private:
  IoRuntime& runtime_;
  const ClientOptions options_;
  const StreamHandle::Impl::Shared shared_;
};

Client::Client(IoRuntime& runtime, ClientOptions options)
    : impl_(std::make_shared<Impl>(runtime, std::move(options))) {}
Client::~Client() { impl_->shut_down(); }

StreamHandle Client::stream(ClientRequest request, StreamCallbacks callbacks) {
  return impl_->start({std::move(request), std::move(callbacks)});
}

void Client::request(ClientRequest request, std::function<void(base::Result<Response>)> done) {
  auto response = std::make_shared<Response>();
  StreamCallbacks collect{.on_response =
                              [response](int status, const http::Headers& headers) {
                                response->status = status;
                                response->headers = headers;
                              },
                          .on_data = [response](std::string_view bytes) { response->body += bytes; },
                          .on_end =
                              [response, done = std::move(done)](base::Result<> result) {
                                if (result) {
                                  done(std::move(*response));
                                } else {
                                  done(base::fail(std::move(result).error()));
                                }
                              }};
  impl_->start({std::move(request), std::move(collect), true});
}

base::Result<Response> Client::call(ClientRequest request) {
  ASSERT(!impl_->on_io_thread());
  // Shared, because set_value() may still be on its way out when the value is seen here.
  const auto promise = std::make_shared<std::promise<base::Result<Response>>>();
  this->request(std::move(request),
                [promise](base::Result<Response> result) { promise->set_value(std::move(result)); });
  return promise->get_future().get();
}

}  // namespace llorch::net
