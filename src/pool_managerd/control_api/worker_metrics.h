#pragma once
// The metrics of a pool's workers beside its own. Workers know no reader's token and their ports change, so whoever reads the pool's
// metrics gets theirs with them.
#include <functional>
#include <string>
#include <vector>

#include "base/id.h"
#include "net/client.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::control_api {

// Those that are asked for theirs. `serves`: whether a worker's process goes on; a port that it has left may be somebody else's, who
// would be sent the token. Pure.
std::vector<wire::WorkerInfo> asked_workers(std::vector<wire::WorkerInfo> workers,
                                            const std::function<bool(const base::WorkerId&)>& serves);

// Sends the requests and calls `done` once, with the texts of those that were answered well; of others, and above 1 MiB, an empty one.
// On the io thread, or, without requests, before it returns.
void ask_workers(net::Transport& client, std::vector<net::ClientRequest> requests,
                 std::function<void(std::vector<std::string> texts)> done);

// `own` and behind it each family worker_* of `workers` once, described as by the first that has it, with the series of all. What else
// a worker says is left out, so that none speaks for another daemon. Pure.
std::string with_workers(std::string own, const std::vector<std::string>& workers);

}  // namespace llorch::pool_managerd::control_api
