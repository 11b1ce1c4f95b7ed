#pragma once
// gRPC as bytes and values: its frames, and what its statuses mean. No sockets; every class is single-threaded.
#include <functional>
#include <string>
#include <string_view>

#include "adapter/upstream/http_client.h"
#include "base/result.h"

namespace llorch::adapter::upstream {

// One message as it goes into a request: not compressed, with its length before it. REQUIRES: less than 4 GiB.
std::string grpc_frame(std::string_view message);

// Takes the messages out of the bytes of an answer, however these are cut.
class FrameReader {
 public:
  explicit FrameReader(std::size_t message_bytes_max = 1 << 20) : message_bytes_max_(message_bytes_max) {}

  // Calls `take` with each message that is whole. It keeps at most one message, and of that what has come.
  // Errors, after which it stays failed: PAYLOAD_TOO_LARGE; IO_ERROR, a message is compressed, for which nobody asked.
  base::Result<> feed(std::string_view bytes, const std::function<void(std::string_view message)>& take);
  // Whether all that came were whole messages.
  bool is_between_messages() const { return held_.empty(); }
  void reset() {
    held_.clear();
    failed_ = false;
  }

 private:
  const std::size_t message_bytes_max_;
  std::string held_;  // of a frame
  bool failed_ = false;
};

struct GrpcStatus {
  std::string_view name;  // "UNAVAILABLE"
  int http_status = 0;    // that says the same
};
// A number that gRPC does not have is UNKNOWN.
GrpcStatus grpc_status(int code);

// The answer to a gRPC call with one message: `body` is that message, and a status other than OK has become the HTTP status that
// says the same. Errors: IO_ERROR, this is no such answer.
base::Result<Reply> grpc_reply(Reply reply);

}  // namespace llorch::adapter::upstream
