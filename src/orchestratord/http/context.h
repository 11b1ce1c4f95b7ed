#pragma once
// What every handler needs. Everything pointed to outlives the server.
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/entropy.h"
#include "config/config.h"
#include "net/client.h"
#include "net/server.h"
#include "orchestratord/http/admission_board.h"
#include "orchestratord/http/core_port.h"
#include "orchestratord/http/job_directory.h"
#include "orchestratord/http/live_config.h"
#include "orchestratord/http/metrics.h"
#include "orchestratord/models/catalog.h"
#include "orchestratord/models/model_names.h"
#include "orchestratord/pool_access/pool_access.h"
#include "orchestratord/store/blobs/blob_store.h"
#include "orchestratord/store/store.h"
#include "orchestratord/streams/stream_hub.h"

namespace llorch::orchestratord::http {

struct Context {
  const config::Config* config = nullptr;  // of the start: of callers and their limits ask the live one
  const LiveConfig* live_config = nullptr;
  const base::Clock* clock = nullptr;
  base::Entropy* entropy = nullptr;  // thread-safe: the system's
  net::Executor* request_executor =
      nullptr;                     // its thread reads and tokenises requests, so that no socket waits for a long one
  net::Executor* files = nullptr;  // its thread alone uses `blobs`; null with it
  CorePort* core = nullptr;
  AdmissionBoard* board = nullptr;
  store::Store* store = nullptr;
  store::blobs::BlobStore* blobs = nullptr;  // null in the simulator, which has no client that asks for it
  streams::StreamHub* hub = nullptr;
  net::Transport* client = nullptr;
  models::Catalog* catalog = nullptr;
  pool_access::PoolAccess* pools = nullptr;
  models::ModelNames* names = nullptr;
  models::ModelNames::Reads name_reads;  // what a name leads to is looked for there, and not on the request executor
  const std::vector<wire::KnownModel>* known_models = nullptr;
  JobDirectory* jobs = nullptr;
  http::Metrics* metrics = nullptr;
  const std::atomic<bool>* stopping = nullptr;
  // That the store knew at the start, though the state directory had no credential of theirs.
  std::vector<base::PoolId> unpaired_pools;
  std::filesystem::path state_directory;
  std::int64_t started_mono_ms = 0;
};

// When this process began.
std::int64_t started_unix_s(const Context& context);

// Of each model that has a name, the first one in their order.
std::map<std::string, std::string> names_by_reference(const Context& context);
// Whether it runs jobs now, or will when a slot is free.
bool serves(const wire::WorkerInfo& worker);
// The configured names that stand for a model, in their order.
std::vector<std::string> model_names(const Context& context);
// The one of them that `spelled` means. Errors: MODEL_NOT_FOUND.
base::Result<std::string> model_name(const Context& context, std::string_view spelled);

// Answers with the error's envelope and counts it. Retriable refusals carry a retry_after_ms.
void refuse(const Context& context, const net::ExchangePtr& exchange, base::Error error);

}  // namespace llorch::orchestratord::http
