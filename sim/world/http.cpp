#include "sim/world/http.h"

#include <fmt/core.h>

#include <utility>

#include "base/assert.h"
#include "net/h1/wire.h"
#include "sim/world/world.h"

namespace llorch::sim {
namespace {

namespace h1 = net::h1;
using base::ErrorCode;

// One connection with one request. Both ends are here; what belongs to an end is touched in its process only.
class Exchange final : public net::StreamHandle::Control,
                       public HttpReply,
                       public std::enable_shared_from_this<Exchange> {
 public:
  // Until when the timeout runs.
  enum class Limit { kHead, kWhole };
  Exchange(World& world, Process& client, net::ClientRequest request, net::StreamCallbacks callbacks, Limit limit)
      : world_(world), client_(client), limit_(limit), request_(std::move(request)), callbacks_(std::move(callbacks)) {}

  // ---- the client's end ----
  void begin();
  void cancel_soon() override {
    cancelled_ = true;
    world_.loop.post(client_, 10, [self = shared_from_this()] { self->finish({}); });
  }
  void pause() override {
    paused_ = true;
    world_.oracle.reached("worker slowed down");
  }
  void resume() override {
    paused_ = false;
    world_.loop.post(client_, 10, [self = shared_from_this()] { self->read({}); });
  }

  // ---- the server's end ----
  void respond(const net::Response& response) override {
    send(Wire::kServer, h1::write_head(h1::ResponseHead{.status = response.status,
                                                        .headers = &response.headers,
                                                        .content_length = response.body.size(),
                                                        .keep_alive = false}) +
                            response.body);
    wire_->close(Wire::kServer);
  }
  void start_stream() override {
    const net::http::Headers headers = net::http::sse_headers();
    send(Wire::kServer,
         h1::write_head(h1::ResponseHead{.headers = &headers, .framing = h1::Framing::kChunked, .keep_alive = false}));
  }
  void write(std::string_view bytes) override {
    send(Wire::kServer, fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
  }
  void end() override {
    send(Wire::kServer, "0\r\n\r\n");
    wire_->close(Wire::kServer);
  }
  void on_broken(std::function<void()> fn) override { wire_->on_broken(Wire::kServer, std::move(fn)); }

 private:
  void send(Wire::Side from, std::string_view bytes);
  void serve(std::string_view bytes);
  void read(std::string_view bytes);
  void parse();
  void on_connection_end();
  void finish(base::Result<> result);
  void fail(ErrorCode code, const char* why) { finish(base::fail(code, why)); }

  World& world_;
  Process& client_;
  HttpServer* server_ = nullptr;
  WirePtr wire_;

  // Of the server.
  h1::ChunkPool chunks_;
  h1::RequestParser heard_{h1::ParserLimits{}, chunks_};
  std::string heard_rest_;

  // Of the client.
  const Limit limit_;
  net::ClientRequest request_;
  net::StreamCallbacks callbacks_;
  h1::ResponseParser parser_{h1::ParserLimits{}};
  std::string inbox_;
  bool cancelled_ = false, paused_ = false, head_done_ = false, over_ = false, finished_ = false;
};

void Exchange::begin() {
  const std::size_t path = request_.url.find('/', std::string_view("http://").size());
  server_ = world_.server_at(request_.url.substr(0, path));
  const auto self = shared_from_this();
  if (server_ == nullptr) {
    return world_.loop.post(client_, kMs, [self] { self->fail(ErrorCode::kUnreachable, "nobody listens there"); });
  }
  wire_ = world_.network.connect(
      client_, server_->process(), [](const WirePtr&) {},
      [self] { self->fail(ErrorCode::kUnreachable, "the connection was refused"); });
  wire_->on_broken(Wire::kClient, [self] { self->on_connection_end(); });
  const std::string target = request_.url.substr(path);
  send(Wire::kClient, h1::write_head(h1::RequestHead{.method = request_.method,
                                                     .target = target,
                                                     .host = "simulated",
                                                     .headers = &request_.headers,
                                                     .content_length = request_.body.size()}) +
                          request_.body);
  world_.loop.post(client_, request_.timeout_ms * kMs, [self] {
    if (!self->head_done_ || self->limit_ == Limit::kWhole)
      self->fail(ErrorCode::kTimeout, "connected, but no answer in time");
  });
}

void Exchange::send(Wire::Side from, std::string_view bytes) {
  const bool cut = world_.dice_bytes.chance(world_.options.cuts);
  while (!bytes.empty()) {
    const auto length = static_cast<std::int64_t>(bytes.size());
    const auto piece = static_cast<std::size_t>(cut ? world_.dice_bytes.between(1, length) : length);
    if (piece < bytes.size()) world_.oracle.reached("HTTP in pieces");
    wire_->send(from, [self = shared_from_this(), from, text = std::string(bytes.substr(0, piece))] {
      from == Wire::kClient ? self->serve(text) : self->read(text);
    });
    bytes.remove_prefix(piece);
  }
}

void Exchange::serve(std::string_view bytes) {
  heard_rest_ += bytes;
  while (!heard_.complete()) {
    const auto step = heard_.feed(heard_rest_);
    ASSERT(step, "a request that is none");
    heard_rest_.erase(0, step->consumed);
    if (step->status == h1::ParseStatus::kNeedMore) return;
  }
  server_->serve({heard_.method(), heard_.target(), heard_.body()}, shared_from_this());
}

void Exchange::read(std::string_view bytes) {
  inbox_ += bytes;
  if (!paused_) parse();
  if (over_ && !paused_) on_connection_end();
}

void Exchange::parse() {
  while (!inbox_.empty() && !finished_) {
    const auto step = parser_.feed(inbox_);
    if (!step) return finish(base::fail(ErrorCode::kIoError, step.error().error.message));
    inbox_.erase(0, step->consumed);
    if (!head_done_ && step->status != h1::ParseStatus::kNeedMore) {
      head_done_ = true;
      if (callbacks_.on_response && !cancelled_) callbacks_.on_response(parser_.status(), parser_.headers());
    }
    const std::string body = std::exchange(parser_.body(), {});
    if (!body.empty() && callbacks_.on_data && !cancelled_) callbacks_.on_data(body);
    if (step->status == h1::ParseStatus::kDone) return finish({});
    if (step->status == h1::ParseStatus::kNeedMore) return;
  }
}

// The end is behind what is not read yet.
void Exchange::on_connection_end() {
  over_ = true;
  if (paused_ || finished_) return;
  const base::Result<> complete = parser_.finish();
  if (complete) return finish({});
  world_.oracle.reached(inbox_.empty() ? "HTTP broke off" : "HTTP broke off within a chunk's head");
  finish(base::fail(ErrorCode::kIoError, complete.error().message));
}

void Exchange::finish(base::Result<> result) {
  if (finished_) return;
  finished_ = true;
  if (wire_) wire_->close(Wire::kClient);
  if (cancelled_) result = base::fail(ErrorCode::kCancelled, "the request was cancelled by its sender");
  const auto on_end = std::move(callbacks_.on_end);
  callbacks_ = {};
  if (on_end) on_end(std::move(result));
}

constexpr std::int64_t kTimeoutMs = 30'000;

net::StreamHandle open_exchange(World& world, Process& self, net::ClientRequest request, net::StreamCallbacks callbacks,
                                Exchange::Limit limit) {
  if (request.timeout_ms == 0) request.timeout_ms = kTimeoutMs;
  const auto exchange = std::make_shared<Exchange>(world, self, std::move(request), std::move(callbacks), limit);
  exchange->begin();
  return net::StreamHandle(exchange);
}

}  // namespace

net::StreamHandle HttpClient::stream(net::ClientRequest request, net::StreamCallbacks callbacks) {
  return open_exchange(world_, self_, std::move(request), std::move(callbacks), Exchange::Limit::kHead);
}

void HttpClient::request(net::ClientRequest request, std::function<void(base::Result<net::Response>)> done) {
  const auto response = std::make_shared<net::Response>();
  open_exchange(world_, self_, std::move(request),
                {.on_response = [response](int status, const net::http::Headers&) { response->status = status; },
                 .on_data = [response](std::string_view bytes) { response->body += bytes; },
                 .on_end =
                     [response, done = std::move(done)](const base::Result<>& result) {
                       if (!result) return done(base::fail(result.error()));
                       done(std::move(*response));
                     }},
                Exchange::Limit::kWhole);
}

}  // namespace llorch::sim
