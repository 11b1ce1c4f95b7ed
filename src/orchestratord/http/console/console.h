#pragma once
// Serves the web console: the page at / and its files below /console. The files hold no fact of this service, so they are open to
// everybody; the page asks /v2 for what it shows, with the token of its user.
#include <optional>
#include <string_view>

#include "net/server.h"

namespace llorch::orchestratord::http::console {

// The answer for a path as it is requested: "/", "/console/app.js", "/console/views/jobs.js". `known_etag` is the value of
// If-None-Match: 304 if the client has these bytes. NOT_FOUND for any other path. Pure.
base::Result<net::Response> answer(std::string_view path, std::optional<std::string_view> known_etag);

// Whether whoever sends these headers is a browser that wants the page of "/". Programs look there as well, some of them with no `Accept`.
bool is_asked_for(const net::http::Headers& headers);

// The handler of all these paths. Thread-safe.
void serve(const net::Request& request, const net::ExchangePtr& exchange);

}  // namespace llorch::orchestratord::http::console
