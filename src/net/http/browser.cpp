#include "net/http/browser.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/assert.h"
#include "base/origin.h"
#include "net/http/auth.h"

namespace llorch::net::http {
namespace {

constexpr std::size_t kNameBytesMax = 256;  // of a DNS name, with a port
constexpr std::size_t kRequestHeadersBytesMax = 4096;

// "name:80" -> "name", "[::1]:80" -> "::1", "::1" -> "::1", "name." -> "name"
std::string_view host_of(std::string_view authority) {
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    return end == std::string_view::npos ? authority : authority.substr(1, end - 1);
  }
  const std::size_t colon = authority.find(':');
  if (colon == authority.rfind(':')) authority = authority.substr(0, colon);  // more are an address, without a port
  if (authority.ends_with('.')) authority.remove_suffix(1);
  return authority;
}

// An IP address in bytes, one of IPv4 as four in either form; empty for a name.
std::string address_bytes(std::string_view text) {
  const std::string host(text);
  std::array<char, sizeof(in_addr)> v4{};
  if (inet_pton(AF_INET, host.c_str(), v4.data()) == 1) return {v4.data(), v4.size()};
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return {};
  const char* const begin = reinterpret_cast<const char*>(v6.s6_addr);
  return IN6_IS_ADDR_V4MAPPED(&v6) ? std::string(begin + 12, 4) : std::string(begin, sizeof(v6.s6_addr));
}

bool is_same_host(std::string_view a, std::string_view b) {
  if (equals_ignoring_case(a, b)) return true;
  const std::string bytes = address_bytes(a);
  return !bytes.empty() && bytes == address_bytes(b);
}

bool is_ours(const BrowserRules& rules, const BrowserInput& input, std::string_view authority) {
  const std::string_view host = host_of(authority);
  if (host.empty() || authority.size() > kNameBytesMax) return false;
  // The text between the brackets alone: is_loopback() would take a colon in it for that of a port.
  const bool is_v6 = host.find(':') != std::string_view::npos;
  if (is_loopback(is_v6 ? fmt::format("[{}]", host) : std::string(host))) return true;
  if (is_same_host(host, host_of(input.local_address))) return true;
  return std::any_of(rules.hosts.begin(), rules.hosts.end(),
                     [&](const std::string& ours) { return is_same_host(host, host_of(ours)); });
}

// Whether the page came from the server that it calls: its origin is what it calls, with a scheme before it.
bool is_same_origin(std::string_view origin, std::optional<std::string_view> authority) {
  if (!authority) return false;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && equals_ignoring_case(origin.substr(scheme.size()), *authority)) return true;
  }
  return false;
}

// As a browser asks with: names of fields between commas.
bool is_list_of_names(std::string_view text) {
  const auto is_of_a_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; };
  return !text.empty() && text.size() <= kRequestHeadersBytesMax &&
         std::ranges::all_of(text, [&](unsigned char c) { return is_of_a_name(c) || c == ',' || c == ' '; });
}

// What its caller or its operator can do. `origin`: as the request has it, by whoever wrote it.
std::string way_in(std::string_view cors_key, std::string_view origin) {
  if (cors_key.empty()) return "it serves no other pages than its own";
  if (base::is_origin(origin)) return fmt::format("if it may call, add \"{}\" to {}", origin, cors_key);
  if (origin == "null") {
    return fmt::format("null is the origin of every sandboxed page, so {} cannot list it; give the page another",
                       cors_key);
  }
  return fmt::format("a page may call whose request has one Origin that {} lists", cors_key);
}

// The origin is repeated only if it could be listed.
base::Error foreign_page(const BrowserRules& rules, std::string_view origin = {}) {
  const bool has_name = base::is_origin(origin);
  auto error = base::Error{
      base::ErrorCode::kForbidden,
      fmt::format("the request comes from a page of another site or program{}{}, and this server does "
                  "not serve it; {}",
                  has_name ? ", " : "", has_name ? origin : "", way_in(rules.cors_key, origin)),
      {}}.with("reason", "origin");
  return has_name ? std::move(error).with("origin", std::string(origin)) : error;
}

}  // namespace

base::Result<std::optional<std::string>> check_browser(const BrowserRules& rules, const BrowserInput& input) {
  ASSERT(input.headers != nullptr);
  const Headers& headers = *input.headers;
  const auto authority = headers.get("Host");
  if (authority && !is_ours(rules, input, *authority)) {
    return base::fail(base::Error{
        base::ErrorCode::kForbidden,
        "the Host header names another server; call this one by its address or as localhost, "
        "or list the name in orchestratord.hosts of this server's configuration",
        {}}.with("reason", "host"));
  }
  if (const auto origin = headers.get("Origin")) {
    if (headers.count("Origin") != 1) return base::fail(foreign_page(rules));
    const bool listed = std::any_of(rules.cors_origins.begin(), rules.cors_origins.end(),
                                    [&](const std::string& allowed) { return equals_ignoring_case(allowed, *origin); });
    const bool shows_token = input.token_needed && !rules.cors_key.empty() && base::is_origin_of_a_program(*origin);
    if (listed || shows_token) return std::string(*origin);
    if (!is_same_origin(*origin, authority)) return base::fail(foreign_page(rules, *origin));
  }
  // Of requests that carry no origin, such as those of images and links.
  const auto site = headers.get("Sec-Fetch-Site");
  if (site && *site != "same-origin" && *site != "none") return base::fail(foreign_page(rules));
  return std::nullopt;
}

namespace {

// curl gives a body this type unless it is told another. A page can send that type without asking first, but no browser lets a page
// choose the program's name without: it is no field of those that a page may set, and a form sets none. See ADR 0095.
bool is_of_curl(const Headers& headers, std::string_view type) {
  if (!equals_ignoring_case(type, "application/x-www-form-urlencoded")) return false;
  for (const char* of_browsers :
       {"Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"}) {
    if (headers.get(of_browsers)) return false;
  }
  return headers.count("User-Agent") == 1 && headers.get("User-Agent")->starts_with("curl/");
}

}  // namespace

base::Result<> check_media_type(const Headers& headers, BodyType takes) {
  const auto length = headers.get("Content-Length");
  const bool has_body = headers.get("Transfer-Encoding") || (length && *length != "0");
  if (!has_body) return {};
  std::string_view type = headers.get("Content-Type").value_or("");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  const bool is_form = takes == BodyType::kForm;
  const std::string_view wanted = is_form ? "multipart/form-data" : "application/json";
  if (headers.count("Content-Type") == 1 &&
      (equals_ignoring_case(type, wanted) || (!is_form && is_of_curl(headers, type))))
    return {};
  return base::fail(base::Error{
      base::ErrorCode::kInvalidParams,
      is_form ? "the body must be a form with a file; send it as multipart/form-data (curl: -F 'file=@NAME')"
              : "the body must be JSON and say so; send the header `Content-Type: application/json` (curl: -H "
                "'Content-Type: application/json')",
      {}}.with("field", "Content-Type")
                        .with("reason", "media_type"));
}

bool is_preflight(std::string_view method, const Headers& headers) {
  return method == "OPTIONS" && headers.get("Origin") && headers.get("Access-Control-Request-Method");
}

Headers cors_headers(std::string_view origin) {
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Access-Control-Expose-Headers",
           "X-Correlation-Id, X-Request-Id, Request-Id, Retry-After, X-Should-Retry, X-Backoff-Ms, "
           "X-Budget-Tokens-Remaining, X-Budget-Time-Remaining-Ms, X-Budget-Cost-Remaining"},
          {"Vary", "Origin"}};
}

Headers preflight_headers(std::string_view origin, std::string_view methods, std::string_view request_headers) {
  // "*" would not let a page send its token.
  std::string names = "Authorization, Content-Type, Last-Event-ID, X-Correlation-Id";
  if (is_list_of_names(request_headers)) names.append(", ").append(request_headers);
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Access-Control-Allow-Methods", std::string(methods)},
          {"Access-Control-Allow-Headers", std::move(names)},
          {"Access-Control-Allow-Private-Network", "true"},
          {"Access-Control-Max-Age", "600"},
          {"Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"}};
}

}  // namespace llorch::net::http
