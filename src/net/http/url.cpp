#include "net/http/url.h"

#include <fmt/core.h>

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

base::Result<Url> parse_url(std::string_view text) {
  const auto invalid = [&](std::string_view why) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} is not a usable URL: {}; write http://host:port/path", text, why));
  };
  const auto parsed = urls::parse_uri(urls::string_view(text.data(), text.size()));
  if (!parsed) return invalid("it does not parse");
  if (parsed->scheme_id() != urls::scheme::http) return invalid("only http is spoken here");
  if (parsed->host().empty()) return invalid("it names no host");
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
