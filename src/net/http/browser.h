#pragma once
// A browser sends what any page tells it to, from inside the machines that its user trusts. These rules refuse what a page of
// another site makes it send. Pure; values, so no thread rule.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http/message.h"

namespace llorch::net::http {

struct BrowserRules {
  // Names under which clients reach this server, without a port. Loopback names and the address at which a connection arrived
  // need no entry.
  std::vector<std::string> hosts;
  // Sites and programs whose pages may call this server, as they send it: "https://chat.example", "app://obsidian.md". Its own
  // pages need no entry.
  std::vector<std::string> cors_origins;
  // The key of the configuration that lists them: "orchestratord.cors_origins". Empty: none does.
  std::string_view cors_key = {};
};

struct BrowserInput {
  const Headers* headers = nullptr;  // REQUIRES not null
  std::string_view local_address;    // at which the connection arrived: "192.0.2.7:8080"
  bool token_needed = false;         // every caller shows one, those of this machine as well
};
// Returns the origin if a page in cors_origins sent the request, or an installed program to a server that needs a token of everybody
// and lists origins at all; nothing if no page of another site sent it.
// FORBIDDEN with details.reason "host": the Host header has a name that is not this server's, as when a page's own name
// was pointed at this machine; "origin": any other page sent it. The message has the value to list, if there is one.
base::Result<std::optional<std::string>> check_browser(const BrowserRules& rules, const BrowserInput& input);

// Forms and pages can send any body without asking first, but not as JSON, and not under the name of another program.
// INVALID_PARAMS with details.reason "media_type", to be sent with the status 415: a body that is not of the type that the route
// takes. A request without a body needs no type. Where JSON is taken, curl's own type of `curl -d` is taken from curl as well.
enum class BodyType { kJson, kForm };
base::Result<> check_media_type(const Headers& headers, BodyType takes = BodyType::kJson);

// Whether it is the question that a browser asks before it sends a page's request: OPTIONS with these fields.
bool is_preflight(std::string_view method, const Headers& headers);

// Fields of an answer to a page of `origin`, and of the answer to its preflight. `methods`: "GET, HEAD, POST". `request_headers`: what
// the page wants to send, all of which it may: its site is listed, and no field but a token says who a caller is.
Headers cors_headers(std::string_view origin);
Headers preflight_headers(std::string_view origin, std::string_view methods, std::string_view request_headers);

}  // namespace llorch::net::http
