#pragma once
// HTTP client for the daemons and the CLI: whole or streamed responses, one at a time per connection. A connection whose
// response was complete takes the next request to the same server.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http/error_response.h"
#include "net/http/message.h"
#include "net/http/url.h"
#include "net/io_runtime.h"

namespace llorch::net {

using http::Response;

struct ClientOptions {
  std::int64_t connect_timeout_ms = 5'000;
  std::int64_t request_timeout_ms = 30'000;  // for requests that name none
  std::size_t response_bytes_max = 64 << 20;
};

struct ClientRequest {
  std::string method = "GET";
  std::string url;  // http://host:port/path
  http::Headers headers;
  // Token for the server of `url`, sent to it alone: a redirect is an answer and not followed. Empty: none.
  std::string bearer{};
  std::string body;                    // JSON, unless a Content-Type says something else
  base::CorrelationId correlation_id;  // sent as X-Correlation-Id unless empty, and its trace as traceparent
  // Whole requests: until the last byte of the response. Streams: until the response's head. 0 = the client's default.
  std::int64_t timeout_ms = 0;
  // Streams, after the head: longest silence. 0 = for ever.
  std::int64_t idle_timeout_ms = 0;
};

// Called on the io thread, in this order: on_response at most once, on_data any number of times, on_end exactly once. They
// must not block.
struct StreamCallbacks {
  std::function<void(int status, const http::Headers& headers)> on_response;
  std::function<void(std::string_view bytes)> on_data;
  // Success: the response was complete. CANCELLED: after cancel() or by the client's destructor. Else as for request().
  std::function<void(base::Result<> result)> on_end;
};

// Controls one streamed response; thread-safe; may be dropped while the stream goes on. None of its members blocks.
class StreamHandle {
 public:
  // A transport implements this behind each handle; the handle's members call these.
  class Control {
   public:
    virtual ~Control() = default;
    virtual void cancel_soon() = 0;
    virtual void pause() = 0;
    virtual void resume() = 0;
  };
  class Impl;

  StreamHandle() = default;
  explicit StreamHandle(std::weak_ptr<Control> control) : control_(std::move(control)) {}

  // Closes the connection at once; no on_data starts after it, only on_end(CANCELLED) if the stream had not ended.
  void cancel();
  // Stops reading after at most the bytes already read (64 KiB), so that TCP slows the sender down. The idle timeout
  // stands still while paused.
  void pause();
  void resume();

 private:
  std::weak_ptr<Control> control_;
};

// Sends requests: Client does so over sockets, a simulator by other means. Thread-safe.
// Errors of a request: INVALID_PARAMS (the URL), UNREACHABLE (cannot connect: nothing was delivered), TIMEOUT
// (connected, too slow), IO_ERROR (closed early, or not HTTP), PAYLOAD_TOO_LARGE (the response), CANCELLED. A status >=
// 400 is a Response, not an error; see http::error_of.
class Transport {
 public:
  virtual ~Transport() = default;
  // `done` is called exactly once, on the io thread.
  virtual void request(ClientRequest request, std::function<void(base::Result<Response>)> done) = 0;
  // The callbacks may start before it returns.
  virtual StreamHandle stream(ClientRequest request, StreamCallbacks callbacks) = 0;
};

// REQUIRES: `runtime` outlives it.
class Client final : public Transport {
 public:
  explicit Client(IoRuntime& runtime, ClientOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  // Cancels what is open; when it returns no callback runs or will run. REQUIRES: not on the io thread.
  ~Client() override;

  void request(ClientRequest request, std::function<void(base::Result<Response>)> done) override;
  StreamHandle stream(ClientRequest request, StreamCallbacks callbacks) override;
  // Blocks. REQUIRES: not on the io thread.
  base::Result<Response> call(ClientRequest request);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace llorch::net
