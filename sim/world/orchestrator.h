#pragma once
// One orchestratord: the real core and the real shell around it, in one process of the simulated world. What is simulated
// are its threads, sockets and disk.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/entropy.h"
#include "net/server.h"
#include "orchestratord/core/core.h"
#include "orchestratord/store/store.h"
#include "sim/world/exchange.h"
#include "sim/world/watch.h"

namespace llorch::sim {

// As whom a pool speaks: all are paired.
net::http::Principal node_principal(const std::string& pool_id);

class Orchestrator {
 public:
  explicit Orchestrator(World& world);
  ~Orchestrator();

  void start();
  void crash();
  // The last word of a run: whether the store, opened once more, still holds what it has answered.
  void store_reopens();
  // Drops what its dead lives still refer to. REQUIRES: nothing is stepped any more.
  void shut_down();

  // ---- its HTTP API, called in its process ----
  // Whatever is answered as a whole.
  void serve(net::Request request, Reply<net::Response> reply);
  struct EventsWanted {
    net::http::Principal caller;
    std::string job;
    std::optional<std::string> last_event_id;
  };
  void events(const EventsWanted& wanted, const WirePtr& wire, const SinkPtr& sink);
  // The client at the other end of the wire reads again.
  void client_reads(const SinkPtr& sink);

 private:
  struct Life;
  using Command = orchestratord::core::Command;

  void post(orchestratord::core::Event event);
  void drain();
  void step(orchestratord::core::Event event);
  void execute(Command command);
  void handle(net::Request request, const net::ExchangePtr& exchange);
  void bug(orchestratord::store::RestoredState& state) const;
  void bug(orchestratord::core::Event& event);
  void bug(std::vector<Command>& commands);
  bool is_lost(const Command& command);
  void arm();
  void tick();

  World& world_;
  // Of injected bugs.
  std::int64_t swaps_ = 0;
  std::map<std::string, std::int64_t> used_ms_;
  std::optional<orchestratord::core::StartWorker> last_start_;
  std::int64_t last_start_ms_ = 0;
  std::int64_t callers_ = 0;
  const ProcessClock clock_;
  base::SeededEntropy entropy_;
  std::unique_ptr<Life> life_;
  std::vector<std::unique_ptr<Life>> dead_;  // closures on their way may still refer to them
};

}  // namespace llorch::sim
