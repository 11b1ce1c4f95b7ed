#pragma once
// HTTP messages as plain values, the same for HTTP/1.1 and later versions. No sockets. Values, so no thread rule.
#include <cstddef>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/id.h"
#include "net/http/principal.h"

namespace llorch::base {
class Entropy;
}

namespace llorch::net::http {

// Header fields in the order of the wire. Names compare without regard to case.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}

  // The first field of this name; nullopt if there is none.
  std::optional<std::string_view> get(std::string_view name) const;
  std::size_t count(std::string_view name) const;
  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  // Replaces every field of this name.
  void set(std::string_view name, std::string value);

  const std::vector<Field>& fields() const { return fields_; }
  bool operator==(const Headers&) const = default;

 private:
  std::vector<Field> fields_;
};

bool equals_ignoring_case(std::string_view a, std::string_view b);

// Who sent a request: never the token itself (AUTH-1008).
struct Peer {
  std::string address;  // "127.0.0.1:51234"
  Principal principal;
};

struct Request {
  std::string method;                                            // upper case as sent
  std::string path;                                              // as sent, percent-encoded, without the query
  std::map<std::string, std::string, std::less<>> path_params;   // {id} of the route, percent-decoded
  std::map<std::string, std::string, std::less<>> query_params;  // percent-decoded; the last of equal keys wins
  Headers headers;
  std::string body;
  base::CorrelationId correlation_id;  // the caller's, or a new UUIDv4; with the caller's trace
  Peer peer;

  // The parameter {name} of the route. REQUIRES the matched route to have it.
  const std::string& path_param(std::string_view name) const;
  std::optional<std::string_view> query_param(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
};

Response json_response(int status, std::string body);
Response text_response(int status, std::string body);

// Content-Type, Cache-Control and X-Accel-Buffering of an event stream. The server adds Connection and
// X-Correlation-Id, as it does to every response.
Headers sse_headers();

inline constexpr std::string_view kCorrelationHeader = "X-Correlation-Id";

// `given` if it is [A-Za-z0-9_-]{1,64}, else a new UUIDv4.
base::CorrelationId correlation_id_or_new(std::optional<std::string_view> given, base::Entropy& entropy);

}  // namespace llorch::net::http
