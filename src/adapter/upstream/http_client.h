#pragma once
// HTTP and HTTPS to one engine, over libcurl: connections that are kept, certificates that are checked, answers that stream. It
// follows no redirect, reads no proxy of the environment and retries nothing.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::adapter::upstream {

struct ClientOptions {
  std::string ca_file;  // empty: the system's
  std::string proxy;    // empty: none
  std::int64_t connect_timeout_ms = 5'000;
};

struct Call {
  std::string method = "GET";
  std::string url;
  std::string bearer;                     // empty: none; goes to `url` alone and into no message
  std::string body;                       // JSON, or frames of gRPC
  std::vector<std::string> headers = {};  // "name: value"
  bool grpc = false;                      // HTTP/2, over a plain connection too, and trailers are read
  std::int64_t timeout_ms = 0;            // until the last byte; 0: none
  std::int64_t silence_ms = 0;            // longest time without a byte; 0: none. Counted in seconds, rounded up
  // Asked on the client's thread once the connection is there and nothing has been sent on it; false ends the transfer (IO_ERROR).
  std::function<bool()> may_send = {};
};

struct Head {
  int status = 0;
  std::optional<std::int64_t> retry_after_ms;
};

// Called on the client's thread, on_end exactly once unless the transfer is cancelled, and last.
struct Callbacks {
  std::function<void(const Head& head)> on_head;
  // false: not now; the same bytes come again after resume().
  std::function<bool(std::string_view bytes)> on_data;
  // Of a gRPC call, before on_end: the status that the engine ended it with. Not called: it named none.
  std::function<void(int code)> on_grpc_status = {};
  // Success: the answer was complete. Errors: UNREACHABLE (no connection, or none that can be trusted), TIMEOUT, IO_ERROR.
  std::function<void(base::Result<> result)> on_end;
};

enum class TransferId : std::uint64_t {};
enum class TimerId : std::uint64_t {};

struct Reply {
  Head head;
  std::string body;
  std::optional<int> grpc_status = {};
};

class HttpClient {
 public:
  explicit HttpClient(ClientOptions options);
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient();  // stop()

  // Runs `fn` on the client's thread, in order of posting, or after so long. It must not block. Thread-safe; dropped after stop().
  void post(std::function<void()> fn);
  void post_after(std::int64_t delay_ms, std::function<void()> fn);

  // REQUIRES for these five: on the client's thread.
  // As post_after(), until it is cancelled: then `fn` is gone at once with what it holds. Nothing happens if it has run.
  TimerId start_timer(std::int64_t delay_ms, std::function<void()> fn);
  void cancel(TimerId id);
  TransferId start(const Call& call, Callbacks callbacks);
  // Closes the connection; no callback of this transfer comes any more. Nothing happens if it has ended.
  void cancel(TransferId id);
  void resume(TransferId id);

  // Blocks. The answer has at most `body_bytes_max` bytes; longer is PAYLOAD_TOO_LARGE. SHUTTING_DOWN when the
  // client is stopped before the answer is there. REQUIRES: not on the client's thread.
  base::Result<Reply> call(const Call& call, std::size_t body_bytes_max = 4 << 20);

  // Ends every transfer without a callback, and calls with an error, and joins the thread. Idempotent. REQUIRES: not on the client's thread.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llorch::adapter::upstream
