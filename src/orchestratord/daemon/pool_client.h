#pragma once
// Calls to pool managers; their answers become events of the brain. Only paired pools are called, each with its own token.
#include <functional>
#include <string>

#include "net/client.h"
#include "orchestratord/brain/commands.h"
#include "orchestratord/brain/events.h"
#include "orchestratord/catalog/catalog.h"
#include "orchestratord/pool_access/pool_access.h"

namespace llorch::orchestratord::app::brain_host {

// Thread-safe. REQUIRES: everything pointed to outlives it; destroyed after `client` has no callback running.
class PoolClient {
 public:
  struct Options {
    net::Transport* client = nullptr;
    catalog::Catalog* catalog = nullptr;
    pool_access::PoolAccess* access = nullptr;
    std::function<void(brain::Event)> post;
  };
  explicit PoolClient(Options options) : options_(std::move(options)) {}

  void ask_state(const brain::AskPoolState& command);
  void start_worker(const brain::StartWorker& command);
  void stop_worker(const brain::StopWorker& command);

 private:
  const Options options_;
};

}  // namespace llorch::orchestratord::app::brain_host
