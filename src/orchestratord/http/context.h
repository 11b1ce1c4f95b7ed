#pragma once
// What every handler needs. Everything pointed to outlives the server.
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/entropy.h"
#include "contract/config.h"
#include "net/client.h"
#include "net/server.h"
#include "orchestratord/api/admission_board.h"
#include "orchestratord/api/brain_port.h"
#include "orchestratord/api/job_directory.h"
#include "orchestratord/catalog/catalog.h"
#include "orchestratord/catalog/model_ref.h"
#include "orchestratord/pool_access/pool_access.h"
#include "orchestratord/state_store/store.h"
#include "orchestratord/streaming/stream_hub.h"
#include "orchestratord/telemetry/metrics.h"

namespace llorch::orchestratord::api {

struct Context {
  const contract::Config* config = nullptr;
  const base::Clock* clock = nullptr;
  base::Entropy* entropy = nullptr;  // thread-safe: the system's
  net::Executor* desk = nullptr;     // its thread reads and tokenises requests, so that no socket waits for a long one
  BrainPort* brain = nullptr;
  AdmissionBoard* board = nullptr;
  state_store::Store* store = nullptr;
  streaming::StreamHub* hub = nullptr;
  net::Transport* client = nullptr;
  catalog::Catalog* catalog = nullptr;
  pool_access::PoolAccess* pools = nullptr;
  catalog::AllowedRoots roots;
  JobDirectory* jobs = nullptr;
  telemetry::Metrics* metrics = nullptr;
  const std::atomic<bool>* stopping = nullptr;
  std::filesystem::path state_directory;
  std::int64_t started_mono_ms = 0;
};

// Answers with the error's envelope and counts it. Retriable refusals carry a retry_after_ms.
void refuse(const Context& context, const net::ExchangePtr& exchange, base::Error error);

}  // namespace llorch::orchestratord::api
