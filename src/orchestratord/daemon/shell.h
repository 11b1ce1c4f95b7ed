#pragma once
// What stands between the brain and the world, without threads, sockets and files: streams, live jobs, catalog, relay, calls
// to pools, commands carried out, the handlers of the API. The daemon runs it on its threads (orchestrator.cpp), the
// simulator in virtual time.
#include <atomic>
#include <filesystem>
#include <functional>
#include <vector>

#include "orchestratord/api/routes.h"
#include "orchestratord/app/brain_host/command_runner.h"
#include "orchestratord/app/brain_host/pool_client.h"

namespace llorch::orchestratord::app {

// Thread-safe but for what says otherwise.
class Shell {
 public:
  struct Options {
    const contract::Config* config = nullptr;  // these REQUIRE not null and outlive the shell
    const base::Clock* clock = nullptr;
    base::Entropy* entropy = nullptr;
    telemetry::Metrics* metrics = nullptr;
    state_store::Store* store = nullptr;
    net::Transport* client = nullptr;  // may go before the shell, once nothing is asked of it any more
    pool_access::PoolAccess* access = nullptr;
    net::Executor* desk = nullptr;   // reads and tokenises requests
    net::Executor* aside = nullptr;  // what may take seconds, beside everything else
    std::function<void(brain::Event)> post;
    std::function<void()> on_drained;
    catalog::AllowedRoots roots;
    std::filesystem::path state_directory;
    std::size_t stream_ticks_per_s = 1;  // how often tick_streams() is called
  };
  explicit Shell(Options options);
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  // Streams and payloads of what the store holds, before the brain may dispatch any of it. REQUIRES: called once, first.
  brain::Restored restore(state_store::RestoredState state);
  // REQUIRES: one thread, the brain's.
  void execute(brain::Command command) { runner_.execute(std::move(command)); }
  // Everything that is served.
  std::vector<api::Api::Route> routes() { return api_.routes(); }
  // REQUIRES: not two calls of one at once.
  void tick_streams() { hub_.tick(); }
  void tick_relay() { relay_.tick(); }  // once a second

  // From here on new work is refused, and a client that goes cancels nothing.
  void begin_stop() { stopping_ = true; }
  void abort_clients() { hub_.abort_clients(); }
  // Ends what runs aside, and forgets who waits for an answer. REQUIRES: nothing is executed any more.
  void end_stop();

  // What its parts share, to look at.
  const api::Context& context() const { return context_; }

 private:
  api::Context make_context();

  // In order of dependency: what is declared later may use what is declared earlier.
  const Options options_;
  std::atomic<bool> stopping_{false};
  api::BrainPort port_;
  api::AdmissionBoard board_;
  streaming::StreamHub hub_;
  api::JobDirectory jobs_;  // its streams report to the hub
  catalog::Catalog catalog_;
  streaming::Relay relay_;
  brain_host::PoolClient pools_;
  api::Context context_;
  brain_host::CommandRunner runner_;
  api::Api api_;
};

}  // namespace llorch::orchestratord::app
