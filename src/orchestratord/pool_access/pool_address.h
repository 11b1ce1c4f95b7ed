#pragma once
// Addresses that a pool may announce. Pure.
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/pool.h"

namespace llorch::orchestratord::pool_access {

// The base URL of a pool, as it announces it to a caller that is reached at `peer_address` ("10.0.0.7:51234"; empty: one
// that we called). Refuses a wildcard address, which is nobody's, and a loopback address from another machine, which would
// be ours. Errors: INVALID_PARAMS.
base::Result<> check_endpoint(const std::string& endpoint, std::string_view peer_address);
// The base URL of a worker of the pool at `endpoint`: on the pool's own host. Errors: INVALID_PARAMS.
base::Result<> check_worker_uri(const std::string& uri, const std::string& endpoint);
// Both checks, for every address in a pool's report.
base::Result<> check_addresses(const wire::PoolState& state, std::string_view peer_address);

}  // namespace llorch::orchestratord::pool_access
