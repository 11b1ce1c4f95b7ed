#pragma once
// What one process of orchestratord holds in memory; a crash ends it.
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/http/router.h"
#include "orchestratord/daemon/shell.h"
#include "sim/world/http.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"

namespace llorch::sim {

// In the place of a thread: calls wait for their turn in virtual time.
class Turns final : public net::Executor {
 public:
  Turns(World& world, std::int64_t delay_us) : world_(world), delay_us_(delay_us) {}
  void post(std::function<void()> fn) override {
    world_.loop.post(world_.orchestrator_process, delay_us_, std::move(fn));
  }
  void post_after(std::int64_t delay_ms, std::function<void()> fn) override {
    world_.loop.post(world_.orchestrator_process, delay_ms * kMs, std::move(fn));
  }

 private:
  World& world_;
  const std::int64_t delay_us_;
};

struct Orchestrator::Life {
  Life(Orchestrator& self, orchestratord::core::CoreConfig core_config);

  const config::Config config;
  orchestratord::core::Core core;
  Store store;
  HttpClient http;
  const std::unique_ptr<orchestratord::pool_access::PoolAccess> access;
  const std::unique_ptr<orchestratord::models::ModelNames> names;
  const std::vector<wire::KnownModel> known_models;
  Turns request_executor, aside;
  orchestratord::daemon::Shell shell;
  Watch watch;
  net::http::Router router;
  std::vector<orchestratord::http::Api::Route> routes;
  std::vector<std::weak_ptr<SimExchange>> exchanges;
  std::map<const StreamSink*, std::weak_ptr<SimExchange>> exchange_of;
  std::deque<orchestratord::core::Event> mailbox;
  bool draining = false;  // the mailbox is about to be read
  std::uint64_t wakes = 0;
  std::int64_t next_wake_ms = -1;

  void drop_clients() {
    for (const auto& weak : exchanges) {
      if (const auto exchange = weak.lock()) exchange->drop();
    }
    shell.end_stop();
  }
};

}  // namespace llorch::sim
