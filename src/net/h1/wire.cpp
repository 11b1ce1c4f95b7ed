// Beast 1.81 asserts n >= 5 in parse_chunk_header() although "0\r\n\r" of an unfinished last chunk has 4 bytes: any
// client could abort the process. The code behind the assertion is right for it; the fuzzer watches over the memory.
#define BOOST_DISABLE_ASSERTS

#include "net/h1/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>

#include "base/assert.h"

namespace llorch::net::h1 {
namespace {

namespace beast = boost::beast;
using beast::error_code;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// Beast's grammar, our values: nothing is stored twice. `Sink` takes the bytes of the body.
template <bool kIsRequest, class Sink>
class WireParser : public beast::http::basic_parser<kIsRequest> {
 public:
  template <class... SinkArguments>
  explicit WireParser(ParserLimits limits, SinkArguments&... arguments) : body(arguments...), limits_(limits) {
    // Beast counts the start line and the fields apart or together, depending on how the bytes come; feed() counts.
    this->header_limit(static_cast<std::uint32_t>(limits.header_bytes_max + 1));
    this->body_limit(limits.body_bytes_max);
  }

  tl::expected<ParseStep, WireError> feed(std::string_view bytes) {
    ParseStep step;
    while (step.consumed < bytes.size()) {
      error_code error;
      const std::string_view rest = bytes.substr(step.consumed);
      const bool in_head = !head_done_;
      in_chunk_header_ = false;
      const std::size_t taken = this->put(boost::asio::const_buffer(rest.data(), rest.size()), error);
      step.consumed += taken;
      if (in_head) head_bytes_ += taken;
      const bool needs_more = error == beast::http::error::need_more;
      const std::size_t unfinished = needs_more ? rest.size() - taken : 0;  // of a head, a chunk's header or trailers
      const std::size_t finished = in_head ? head_bytes_ : in_chunk_header_ ? taken : 0;
      if (finished + unfinished > limits_.header_bytes_max) return too_large_head();
      if (needs_more) return step;
      if (error) return failure(error);
      if (this->is_done()) {
        step.status = ParseStatus::kDone;
        return step;
      }
      if (!head_reported_ && this->is_header_done()) {
        head_reported_ = true;
        step.status = ParseStatus::kHead;
        return step;
      }
    }
    return step;
  }

  std::size_t head_memory_bytes() const {
    return 2 * head_bytes_ + headers.fields().size() * sizeof(http::Headers::Field);
  }

  std::string method;
  std::string target;
  int status = 0;
  int version = 11;
  http::Headers headers;
  Sink body;

 private:
  tl::unexpected<WireError> too_large_head() const {
    return tl::unexpected(WireError{
        431, base::Error{base::ErrorCode::kPayloadTooLarge,
                         fmt::format("the header is larger than {} bytes or has more than {} fields; send less "
                                     "in it",
                                     limits_.header_bytes_max, limits_.fields_max),
                         {}}});
  }
  tl::unexpected<WireError> failure(const error_code& error) const {
    if (error == beast::http::error::header_limit) return too_large_head();
    if (error == beast::http::error::body_limit) {
      base::Error too_large{base::ErrorCode::kPayloadTooLarge,
                            fmt::format("the body is larger than the limit of {} bytes", limits_.body_bytes_max),
                            {}};
      return tl::unexpected(
          WireError{413, std::move(too_large).with("bytes_max", static_cast<std::int64_t>(limits_.body_bytes_max))});
    }
    return tl::unexpected(WireError{400, base::Error{base::ErrorCode::kInvalidParams,
                                                     fmt::format("not a valid HTTP/1.1 message: {}", error.message()),
                                                     {}}});
  }

  void on_request_impl(beast::http::verb, beast::string_view name, beast::string_view uri, int http_version,
                       error_code&) override {
    method = view(name);
    target = view(uri);
    version = http_version;
  }
  void on_response_impl(int code, beast::string_view, int http_version, error_code&) override {
    status = code;
    version = http_version;
  }
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value,
                     error_code& error) override {
    if (head_done_) return;  // trailers
    if (headers.fields().size() >= limits_.fields_max) {
      error = beast::http::error::header_limit;
      return;
    }
    headers.add(std::string(view(name)), std::string(view(value)));
  }
  void on_header_impl(error_code& error) override {
    head_done_ = true;
    // A coding that is not chunked would make two readers disagree about where the body ends.
    if (kIsRequest && headers.get("Transfer-Encoding") && !this->chunked()) {
      error = beast::http::error::bad_transfer_encoding;
    }
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast::string_view bytes, error_code&) override {
    body.append(view(bytes));
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override { in_chunk_header_ = true; }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code&) override {
    body.append(view(bytes));
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}

  ParserLimits limits_;
  std::size_t head_bytes_ = 0;
  bool head_done_ = false;
  bool head_reported_ = false;
  bool in_chunk_header_ = false;  // the last element taken was a chunk's header, or the last chunk with its trailers
};

bool is_framing_field(std::string_view name) {
  for (const std::string_view ours :
       {"Connection", "Content-Length", "Transfer-Encoding", "Keep-Alive", "Date", "Host"}) {
    if (http::equals_ignoring_case(name, ours)) return true;
  }
  return false;
}

void append_clean(std::string& out, std::string_view text) {
  const std::size_t begin = out.size();
  out += text;
  std::replace_if(
      out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
      [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, ' ');
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  append_clean(out, name);
  out += ": ";
  append_clean(out, value);
  out += "\r\n";
}

void append_fields(std::string& out, const http::Headers& headers) {
  for (const auto& [name, value] : headers.fields()) {
    if (!is_framing_field(name)) append_field(out, name, value);
  }
}

// IMF-fixdate of RFC 9110.
std::string http_date(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

struct RequestParser::Impl : WireParser<true, Body> {
  using WireParser::WireParser;
  void on_finish_impl(error_code&) override { whole_body = body.join(); }
  std::string whole_body;
};
struct ResponseParser::Impl : WireParser<false, std::string> {
  using WireParser::WireParser;
};

RequestParser::RequestParser(ParserLimits limits, ChunkPool& pool) : impl_(std::make_unique<Impl>(limits, pool)) {}
RequestParser::RequestParser(RequestParser&&) noexcept = default;
RequestParser& RequestParser::operator=(RequestParser&&) noexcept = default;
RequestParser::~RequestParser() = default;
tl::expected<ParseStep, WireError> RequestParser::feed(std::string_view bytes) { return impl_->feed(bytes); }
std::string& RequestParser::method() { return impl_->method; }
std::string& RequestParser::target() { return impl_->target; }
http::Headers& RequestParser::headers() { return impl_->headers; }
std::string& RequestParser::body() { return impl_->whole_body; }
std::size_t RequestParser::memory_bytes() const {
  return impl_->head_memory_bytes() + impl_->body.allocated_bytes() + impl_->whole_body.capacity();
}
std::optional<std::size_t> RequestParser::body_bytes_missing() const {
  const auto missing = impl_->content_length_remaining();
  return missing ? std::optional<std::size_t>(*missing) : std::nullopt;
}
bool RequestParser::complete() const { return impl_->is_done(); }
bool RequestParser::is_http_1_0() const { return impl_->version == 10; }
bool RequestParser::keep_alive() const { return impl_->keep_alive(); }

ResponseParser::ResponseParser(ParserLimits limits) : impl_(std::make_unique<Impl>(limits)) {}
ResponseParser::ResponseParser(ResponseParser&&) noexcept = default;
ResponseParser& ResponseParser::operator=(ResponseParser&&) noexcept = default;
ResponseParser::~ResponseParser() = default;
tl::expected<ParseStep, WireError> ResponseParser::feed(std::string_view bytes) { return impl_->feed(bytes); }
int ResponseParser::status() const { return impl_->status; }
bool ResponseParser::keep_alive() const { return impl_->keep_alive(); }
http::Headers& ResponseParser::headers() { return impl_->headers; }
std::string& ResponseParser::body() { return impl_->body; }

base::Result<> ResponseParser::finish() {
  error_code error = beast::http::error::partial_message;
  if (impl_->is_done()) return {};
  if (impl_->got_some()) impl_->put_eof(error);
  if (error) return base::fail(base::ErrorCode::kIoError, "the connection closed before the response was complete");
  return {};
}

std::string write_head(const ResponseHead& head) {
  ASSERT(head.headers != nullptr);
  const beast::string_view reason = beast::http::obsolete_reason(static_cast<beast::http::status>(head.status));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", head.status, view(reason));
  append_field(out, "Date", http_date(head.unix_ms));
  append_field(out, http::kCorrelationHeader, head.correlation_id);
  append_fields(out, *head.headers);
  const bool bodiless = head.status == 204 || head.status == 304;
  if (head.framing == Framing::kChunked) out += "Transfer-Encoding: chunked\r\n";
  if (head.framing == Framing::kContentLength && !bodiless) {
    out += fmt::format("Content-Length: {}\r\n", head.content_length);
  }
  out += head.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

std::string write_head(const RequestHead& head) {
  ASSERT(head.headers != nullptr);
  std::string out;
  append_clean(out, head.method);
  out += ' ';
  append_clean(out, head.target);
  out += " HTTP/1.1\r\n";
  append_field(out, "Host", head.host);
  append_fields(out, *head.headers);
  if (head.content_length > 0 || head.method == "POST" || head.method == "PUT" || head.method == "PATCH") {
    out += fmt::format("Content-Length: {}\r\n", head.content_length);
  }
  out += "\r\n";
  return out;
}

}  // namespace llorch::net::h1
