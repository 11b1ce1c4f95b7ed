#pragma once
// Calls to pool managers; their answers become events of the core. Only paired pools are called, each with its own token.
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "net/client.h"
#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"
#include "orchestratord/models/catalog.h"
#include "orchestratord/pool_access/pool_access.h"

namespace llorch::orchestratord::daemon {

// Thread-safe. REQUIRES: everything pointed to outlives it; destroyed after `client` has no callback running.
class PoolClient {
 public:
  struct Options {
    net::Transport* client = nullptr;
    models::Catalog* catalog = nullptr;
    pool_access::PoolAccess* access = nullptr;
    std::function<void(core::Event)> post;
  };
  explicit PoolClient(Options options) : options_(std::move(options)) {}

  void ask_state(const core::AskPoolState& command);
  void start_worker(const core::StartWorker& command);
  void stop_worker(const core::StopWorker& command);
  void stage_model(const core::StageModel& command);

 private:
  void note_answer(const std::string& endpoint, std::int64_t asked_ms);
  bool is_overtaken(const std::string& endpoint, std::int64_t asked_ms);

  const Options options_;
  std::mutex mutex_;
  // By endpoint: when the newest answered question was asked. The core's registry knows it of its pools, one thread later than the
  // catalog is told here.
  std::map<std::string, std::int64_t> answered_ms_;
};

}  // namespace llorch::orchestratord::daemon
