#pragma once
// HTTP/1.1 as bytes (RFC 9112): incremental parsers and head writers. Pure; hides Beast. One object, one thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/h1/body.h"
#include "net/http/message.h"

namespace llorch::net::h1 {

struct ParserLimits {
  std::size_t header_bytes_max = 16 << 10;  // start line, fields; also a chunk's header and the trailers
  std::size_t fields_max = 100;             // many short ones take more memory than bytes
  std::size_t body_bytes_max = 4 << 20;
};

// Why a message cannot be read: INVALID_PARAMS (400) or PAYLOAD_TOO_LARGE (413 body, 431 header).
struct WireError {
  int http_status = 400;
  base::Error error;
};

enum class ParseStatus { kNeedMore, kHead, kDone };
struct ParseStep {
  std::size_t consumed = 0;
  ParseStatus status = ParseStatus::kNeedMore;
};

// Feed the unconsumed rest plus what came since. kHead is reported once, and only if a body follows, so that a request
// can be refused before its body is read. After kDone or an error the parser takes no more bytes.
class RequestParser {
 public:
  // REQUIRES: `pool` outlives the parser.
  RequestParser(ParserLimits limits, ChunkPool& pool);
  RequestParser(RequestParser&&) noexcept;
  RequestParser& operator=(RequestParser&&) noexcept;
  ~RequestParser();

  tl::expected<ParseStep, WireError> feed(std::string_view bytes);

  // Valid from kHead on (body: from kDone on). May be moved from.
  std::string& method();
  std::string& target();
  http::Headers& headers();
  std::string& body();
  // Memory that head and body take now, whether or not it is filled.
  std::size_t memory_bytes() const;
  // Bytes still to come of a body with Content-Length. Valid from kHead on.
  std::optional<std::size_t> body_bytes_missing() const;
  bool complete() const;  // kDone was reported
  bool is_http_1_0() const;
  bool keep_alive() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ResponseParser {
 public:
  explicit ResponseParser(ParserLimits limits);
  ResponseParser(ResponseParser&&) noexcept;
  ResponseParser& operator=(ResponseParser&&) noexcept;
  ~ResponseParser();

  tl::expected<ParseStep, WireError> feed(std::string_view bytes);
  // Call when the connection has ended; an error unless the message is complete by that.
  base::Result<> finish();

  int status() const;
  bool keep_alive() const;  // valid from kDone on: the connection may carry another response
  http::Headers& headers();
  // The body bytes decoded since it was last cleared, or moved from.
  std::string& body();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How the end of a body is told.
enum class Framing { kContentLength, kChunked, kUntilClose };

struct ResponseHead {
  int status = 200;
  const http::Headers* headers = nullptr;  // REQUIRES not null. Framing, Connection and Date fields in it are ignored
  Framing framing = Framing::kContentLength;
  std::size_t content_length = 0;  // with kContentLength
  bool keep_alive = true;
  std::string_view correlation_id;
  std::int64_t unix_ms = 0;  // for Date
};
// Status line and fields up to and including the empty line. Control characters in names and values become spaces, so
// that no value can start a field of its own.
std::string write_head(const ResponseHead& head);

struct RequestHead {
  std::string_view method;
  std::string_view target;
  std::string_view host;                   // with the port
  const http::Headers* headers = nullptr;  // REQUIRES not null. Host, framing and Connection fields in it are ignored
  std::size_t content_length = 0;
};
// As above.
std::string write_head(const RequestHead& head);

}  // namespace llorch::net::h1
