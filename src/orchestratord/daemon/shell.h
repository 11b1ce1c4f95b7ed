#pragma once
// What stands between the core and the world, without threads, sockets and files: streams, live jobs, catalog, relay, calls
// to pools, commands carried out, the handlers of the API. The daemon runs it on its threads (orchestrator.cpp), the
// simulator in virtual time.
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/daemon/command_runner.h"
#include "orchestratord/daemon/pool_client.h"
#include "orchestratord/http/routes.h"
#include "orchestratord/store/live_check.h"

namespace llorch::orchestratord::daemon {

// What the payload of a live job says of it.
struct LiveRequest {
  std::string parameters_sha256;
  std::int64_t prompt_events = 0;
};
// Of each job of a state, in its order; absent: its payload is not here. An error: the job cannot be read back, and ends.
using LiveRequests = std::vector<base::Result<std::optional<LiveRequest>>>;
// Whether this program would run the live jobs as they were accepted (ADR 0093). UNSUPPORTED_FORMAT_VERSION: see store::newer_job().
base::Result<LiveRequests> read_live_jobs(const store::RestoredState& state);
// Ahead of a migration: UNSUPPORTED_FORMAT_VERSION also for a sealed payload that cannot be read. It is as an older program wrote it, and
// that one still starts.
base::Result<> check_live_job(const store::FoundLiveJob& job);

// Thread-safe but for what says otherwise.
class Shell {
 public:
  struct Options {
    const config::Config* config = nullptr;  // these REQUIRE not null and outlive the shell
    const base::Clock* clock = nullptr;
    base::Entropy* entropy = nullptr;
    http::Metrics* metrics = nullptr;
    store::Store* store = nullptr;
    net::Transport* client = nullptr;  // may go before the shell, once nothing is asked of it any more
    pool_access::PoolAccess* access = nullptr;
    net::Executor* request_executor = nullptr;  // reads and tokenises requests
    net::Executor* aside = nullptr;             // what may take seconds, beside everything else
    net::Executor* files = nullptr;             // uses `blobs`; null with it
    store::blobs::BlobStore* blobs = nullptr;   // null in the simulator
    traces::SpanExporter* spans = nullptr;      // null: nobody is told of a job's way
    std::function<void(core::Event)> post;
    std::function<void()> on_drained;
    models::AllowedRoots roots;
    models::ModelNames* names = nullptr;
    models::ModelNames::Reads name_reads;  // null in the simulator
    const std::vector<wire::KnownModel>* known_models = nullptr;
    std::filesystem::path state_directory;
    std::size_t stream_ticks_per_s = 1;  // how often tick_streams() is called
  };
  explicit Shell(Options options);
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;
  ~Shell();  // REQUIRES: no executor holds a call of its parts any more

  // Makes streams and payloads of the stored jobs before the core may dispatch any. `requests`: of read_live_jobs(). REQUIRES: called once,
  // first.
  core::Restored restore(store::RestoredState state, LiveRequests requests);
  // REQUIRES: one thread, the core's.
  void execute(core::Command command) { runner_.execute(std::move(command)); }
  // What is served: /v2, and what the gateways add that `enabled` names.
  std::vector<http::Api::Route> routes() { return api_.routes(); }
  std::vector<http::Api::Gateway> gateways(const config::GatewaysConfig& enabled) { return api_.gateways(enabled); }
  // Goes on with what an earlier process has begun beside jobs. REQUIRES: called once, after restore().
  void resume() { api_.resume(); }
  // REQUIRES: not two calls of one at once.
  void tick_streams() { hub_.tick(); }
  void tick_relay() { relay_.tick(); }  // once a second

  // Requests and the core go by this configuration from now on. REQUIRES: nothing but callers and their limits differs.
  void set_config(config::Config config);
  const http::LiveConfig& live_config() const { return live_config_; }

  // From here on new work is refused, and a client that goes cancels nothing.
  void begin_stop() { stopping_ = true; }
  void abort_clients() { hub_.abort_clients(); }
  // Ends a review of the queue and drops the requests that wait for an answer. REQUIRES: nothing is executed any more.
  void end_stop();

  // The context that its parts share, for the simulator to look at.
  const http::Context& context() const { return context_; }

 private:
  http::Context make_context();

  // In order of dependency: what is declared later may use what is declared earlier.
  const Options options_;
  std::atomic<bool> stopping_{false};
  http::LiveConfig live_config_;
  http::CorePort port_;
  http::AdmissionBoard board_;
  streams::StreamHub hub_;
  http::JobDirectory jobs_;  // its streams report to the hub
  const models::ModelSettings model_settings_;
  models::Catalog catalog_;
  streams::Relay relay_;
  daemon::PoolClient pools_;
  http::Context context_;
  daemon::CommandRunner runner_;
  http::Api api_;
};

}  // namespace llorch::orchestratord::daemon
