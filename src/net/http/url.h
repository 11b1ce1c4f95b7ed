#pragma once
// URLs and request targets. Pure.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::net::http {

struct Url {
  std::string host;        // without brackets
  std::string host_field;  // for the Host header: brackets and port as needed
  std::uint16_t port = 80;
  std::string target;  // path and query, percent-encoded, at least "/"
};
// http://host[:port][/path][?query]. Errors: INVALID_PARAMS (also for https, which is not spoken here).
base::Result<Url> parse_url(std::string_view text);

// "http://host:port", with brackets around an IPv6 address. `host` comes without.
std::string base_url(std::string_view host, std::uint16_t port);

// The host at which a listener on `bind_address` is reached from this machine.
std::string local_host(const std::string& bind_address);
// "http://host:port" at which a listener on `bind` ("0.0.0.0:8080", "[::]:8080") is called on this machine: a request that names a
// wildcard is refused. REQUIRES: ADDRESS:PORT.
std::string local_url(std::string_view bind);
// Whether `host` is a wildcard or "this network" (0.0.0.0/8, ::, in any spelling that sockets take): nobody's address.
bool is_unspecified(std::string_view host);

struct Target {
  std::string path;                   // as sent
  std::vector<std::string> segments;  // percent-decoded
  std::map<std::string, std::string, std::less<>> query;
};
// The origin form of a request target. Errors: INVALID_PARAMS.
base::Result<Target> parse_target(std::string_view text);

// One path segment or query value: everything but [A-Za-z0-9-._~] as %XX.
std::string percent_encode(std::string_view text);

}  // namespace llorch::net::http
