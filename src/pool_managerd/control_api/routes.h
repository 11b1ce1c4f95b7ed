#pragma once
// The HTTP surface of pool-managerd: bytes to values, nothing decided.
#include <functional>
#include <string>

#include "base/id.h"
#include "net/server.h"
#include "pool_managerd/model_catalog/model_plan.h"
#include "wire/catalog.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::control_api {

// Each is called on the io thread with a valid request, must not block, and answers through the exchange.
struct Operations {
  std::function<void(wire::StartWorkerRequest, base::CorrelationId, net::ExchangePtr)> start;
  std::function<void(base::WorkerId, bool drain, net::ExchangePtr)> stop;
  std::function<void(wire::ReadyCallback, net::ExchangePtr)> ready;
  std::function<void(wire::LoadProgress, net::ExchangePtr)> progress;
  std::function<void(base::WorkerId, net::ExchangePtr)> worker;
  std::function<void(net::ExchangePtr)> state;
  std::function<void(net::ExchangePtr)> health;
  std::function<void(net::ExchangePtr)> metrics;
  // `reread`: all bytes, whatever is known of the files.
  std::function<void(std::string model_ref, model_catalog::WorkerShape, bool reread, net::ExchangePtr)> describe;
  std::function<void(std::string digest, net::ExchangePtr)> tokenizer;
  std::function<void(wire::PoolPullRequest, base::CorrelationId, net::ExchangePtr)> pull;
  std::function<void(std::string pull_id, net::ExchangePtr)> pull_status;
  std::function<void(std::string pull_id, net::ExchangePtr)> cancel_pull;
  std::function<void(std::string digest, bool unless_loaded, net::ExchangePtr)> remove_model;
  // Of other pools, which come with a grant instead of a token: the routes are open, and these judge the grant.
  std::function<void(const net::Request&, const net::ExchangePtr&)> model_files, model_file;
  std::function<void(std::string model_ref, bool stage, net::ExchangePtr)> stage_model;  // false: it need not stay
};

// `shape`: what describe assumes where the request names nothing else.
void add_routes(net::Server& server, Operations operations, model_catalog::WorkerShape shape);

}  // namespace llorch::pool_managerd::control_api
