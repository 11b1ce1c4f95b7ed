#include "orchestratord/pool_access/pool_address.h"

#include <fmt/core.h>

#include "net/http/auth.h"
#include "net/http/url.h"

namespace llorch::orchestratord::pool_access {
namespace {

tl::unexpected<base::Error> invalid(std::string field, std::string reason, std::string message) {
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::move(field))
                        .with("reason", std::move(reason)));
}

// http://host:port: what is appended to it is all that is asked for there.
base::Result<net::http::Url> parse_base_url(const std::string& text) {
  auto url = TRY(net::http::parse_url(text));
  const std::string_view rest = std::string_view(text).substr(text.find("//") + 2);
  const std::size_t end = rest.find_first_of("/?#");
  if (end == std::string_view::npos || rest.substr(end) == "/") return url;
  return base::fail(base::ErrorCode::kInvalidParams, "the URL has a path, a query or a fragment");
}

}  // namespace

base::Result<> check_endpoint(const std::string& endpoint, std::string_view peer_address) {
  const auto url = parse_base_url(endpoint);
  if (!url) return invalid("endpoint", "url", "endpoint must be the pool manager's base URL, http://host:port");
  if (net::http::is_unspecified(url->host)) {
    return invalid("endpoint", "wildcard",
                   fmt::format("endpoint {} is a wildcard address, at which nobody can be reached; set "
                               "pool-managerd.advertise to the host's address in the network",
                               endpoint));
  }
  if (!peer_address.empty() && !net::http::is_loopback(peer_address) && net::http::is_loopback(url->host)) {
    return invalid("endpoint", "loopback",
                   fmt::format("endpoint {} is reached on the pool's own machine only; set pool-managerd.advertise and "
                               "pool-managerd.bind to the host's address in the network",
                               endpoint));
  }
  return {};
}

base::Result<> check_worker_uri(const std::string& uri, const std::string& endpoint) {
  const auto worker = parse_base_url(uri);
  if (!worker) return invalid("worker.uri", "url", "uri must be the worker's base URL, http://host:port");
  const auto pool = net::http::parse_url(endpoint);
  if (!pool || !net::http::equals_ignoring_case(worker->host, pool->host)) {
    return invalid(
        "worker.uri", "host",
        fmt::format("a worker's uri must be on its pool's own host, as the pool announces it: {} is not on the "
                    "host of {}",
                    uri, endpoint));
  }
  return {};
}

base::Result<> check_addresses(const wire::PoolState& state, std::string_view peer_address) {
  TRY(check_endpoint(state.endpoint, peer_address));
  for (const wire::WorkerInfo& worker : state.workers) {
    if (!worker.uri.empty()) TRY(check_worker_uri(worker.uri, state.endpoint));
  }
  return {};
}

}  // namespace llorch::orchestratord::pool_access
