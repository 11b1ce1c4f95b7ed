#include "pool_managerd/registration/addresses.h"

#include <fmt/core.h>

#include "net/http/url.h"

namespace llorch::pool_managerd::registration {

using base::ErrorCode;

base::Result<std::string> advertised_host(const std::string& advertise, const std::string& bind_address) {
  if (advertise.empty()) {
    if (!net::http::is_unspecified(bind_address)) return bind_address;
    return base::fail(
        ErrorCode::kConfigInvalid,
        fmt::format("pool-managerd.bind is {}, which is all addresses of this machine and none that others "
                    "could be told; set pool-managerd.advertise to the one at which orchestratord reaches "
                    "it, for example 10.0.0.6",
                    bind_address));
  }
  const bool bracketed = advertise.starts_with('[') && advertise.ends_with(']');
  const std::string host = bracketed ? advertise.substr(1, advertise.size() - 2) : advertise;
  const auto url = net::http::parse_url(net::http::base_url(host, 1));
  if (!url || url->host != host || url->port != 1 || url->target != "/" || net::http::is_unspecified(host)) {
    return base::fail(ErrorCode::kConfigInvalid,
                      fmt::format("pool-managerd.advertise is {}: must be a host name or an address that others reach, "
                                  "without scheme and port, for example 10.0.0.6",
                                  advertise));
  }
  return host;
}

std::string orchestrator_url(const config::Config& config) {
  const auto& url = config.pool_managerd.orchestrator_url;
  return url ? *url : net::http::local_url(config.orchestratord.bind);
}

base::Result<std::string> at_host(const std::string& url, const std::string& host) {
  return net::http::base_url(host, TRY(net::http::parse_url(url)).port);
}

}  // namespace llorch::pool_managerd::registration
