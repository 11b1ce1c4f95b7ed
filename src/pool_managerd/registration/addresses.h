#pragma once
// Under which address this node and its workers are announced, and under which the pool manager itself reaches its workers.
// Pure.
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"

namespace llorch::pool_managerd::registration {

// The host that others are told: `advertise`, or the address of `bind` where that is empty. Errors: CONFIG_INVALID, where
// neither names a host.
base::Result<std::string> advertised_host(const std::string& advertise, const std::string& bind_address);
// Where this pool finds orchestratord: pool-managerd.orchestrator_url, else, on this machine, at orchestratord.bind. Empty: it works
// alone.
std::string orchestrator_url(const config::Config& config);
// The same port on another host. Errors: INVALID_PARAMS.
base::Result<std::string> at_host(const std::string& url, const std::string& host);

}  // namespace llorch::pool_managerd::registration
