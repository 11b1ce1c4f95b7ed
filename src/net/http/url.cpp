#include "net/http/url.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <boost/url/encode.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <boost/url/url_view.hpp>
#include <charconv>

namespace llorch::net::http {
namespace {
namespace urls = boost::urls;
std::string text_of(urls::string_view text) { return {text.data(), text.size()}; }
}  // namespace

std::string base_url(std::string_view host, std::uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string_view::npos;
  return is_ipv6 ? fmt::format("http://[{}]:{}", host, port) : fmt::format("http://{}:{}", host, port);
}

std::string local_host(const std::string& bind_address) {
  if (!is_unspecified(bind_address)) return bind_address;
  return bind_address.find(':') == std::string::npos ? "127.0.0.1" : "::1";
}

std::string local_url(std::string_view bind) {
  const std::size_t colon = std::min(bind.rfind(':'), bind.size());
  std::string_view address = bind.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  const std::string host = local_host(std::string(address));
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}{}", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", bind.substr(colon));
}

bool is_unspecified(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  if (inet_aton(text.c_str(), &v4) != 0) return (ntohl(v4.s_addr) >> 24) == 0;
  in6_addr v6{};
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return text.empty();
  return IN6_IS_ADDR_UNSPECIFIED(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 0);
}

base::Result<Url> parse_url(std::string_view text) {
  const auto invalid = [&](std::string_view why) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} is not a usable URL: {}; write http://host:port/path", text, why));
  };
  const auto parsed = urls::parse_uri(urls::string_view(text.data(), text.size()));
  if (!parsed) return invalid("it does not parse");
  if (parsed->scheme_id() != urls::scheme::http) return invalid("only http is spoken here");
  if (parsed->host().empty()) return invalid("it names no host");
  // The library takes the first four numbers of 10.0.0.5.example for the host, and the rest for the path.
  if (!parsed->encoded_path().empty() && !parsed->encoded_path().starts_with('/')) {
    return invalid("its host begins with an IPv4 address and goes on as a name");
  }
  if (parsed->has_userinfo()) return invalid("it holds credentials, which belong in the configuration");

  Url url;
  if (parsed->has_port()) {  // port_number() wraps around
    const std::string digits = text_of(parsed->port());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc{} || end != digits.data() + digits.size() || url.port == 0) {
      return invalid("its port is not in 1..65535");
    }
  }
  url.host = std::string(parsed->host_address());
  url.host_field = text_of(parsed->encoded_host());
  if (parsed->has_port()) url.host_field += fmt::format(":{}", url.port);
  url.target = text_of(parsed->encoded_path());
  if (url.target.empty()) url.target = "/";
  if (parsed->has_query()) url.target += "?" + text_of(parsed->encoded_query());
  return url;
}

base::Result<Target> parse_target(std::string_view text) {
  const auto parsed = urls::parse_origin_form(urls::string_view(text.data(), text.size()));
  if (!parsed) {
    return base::fail(base::ErrorCode::kInvalidParams, "the request target is not /path?query in percent-encoding");
  }
  Target target;
  target.path = text_of(parsed->encoded_path());
  for (const auto& segment : parsed->segments()) target.segments.emplace_back(segment);
  for (const auto& param : parsed->params()) target.query[param.key] = param.value;
  return target;
}

std::string percent_encode(std::string_view text) {
  return urls::encode(urls::string_view(text.data(), text.size()), urls::unreserved_chars);
}

}  // namespace llorch::net::http
