#pragma once
// What one process of orchestratord holds in memory; a crash ends it.
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "orchestratord/streaming/relay.h"
#include "sim/world/http.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"

namespace llorch::sim {

struct Orchestrator::Life {
  Life(Orchestrator& self, orchestratord::brain::BrainConfig config)
      : brain(std::move(config), self.entropy_),
        port([&self](orchestratord::brain::Event event) { self.post(std::move(event)); }),
        hub({.limits = self.world_.options.stream,
             .clock = &self.world_.loop,
             .on_clients_gone =
                 [&self](const base::JobId& job) {
                   self.world_.oracle.reached("clients gone cancelled a job");
                   self.post(
                       orchestratord::brain::CancelRequested{{}, job, orchestratord::jobs::CancelReason::kDisconnect});
                 },
             .on_checkpoints = {}}),
        store(self.world_,
              [&self](orchestratord::jobs::CommitId commit, const base::Result<>& result) {
                if (!result) return self.post(orchestratord::brain::CommitFailed{{commit}, result.error()});
                self.post(orchestratord::brain::Committed{{commit}});
              }),
        http(self.world_, self.world_.orchestrator_process),
        relay({.client = &http,
               .hub = &hub,
               .clock = &self.world_.loop,
               .boot_id = std::to_string(self.world_.loop.now_ms())}) {}

  orchestratord::brain::Brain brain;
  orchestratord::api::BrainPort port;
  orchestratord::streaming::StreamHub hub;
  std::map<std::string, LiveJob> live;  // its streams report to the hub
  Store store;
  HttpClient http;
  orchestratord::streaming::Relay relay;
  std::set<std::uint64_t> in_mid_stream;  // executions whose client would notice if the process died now
  std::map<std::string, std::vector<Reply<SubmitAnswer>>> gate;  // by task: whose admission is on its way
  std::vector<std::weak_ptr<SimExchange>> exchanges;
  std::map<const StreamSink*, std::weak_ptr<SimExchange>> exchange_of;
  std::deque<orchestratord::brain::Event> mailbox;
  bool draining = false;  // the mailbox is about to be read
  std::uint64_t wakes = 0;
  std::int64_t next_wake_ms = -1;
  std::map<std::string, std::int64_t> finished_ms;  // by job, of this life
  std::set<std::string> starting;                   // start calls without an answer

  void drop_clients() {
    for (const auto& weak : exchanges) {
      if (const auto exchange = weak.lock()) exchange->drop();
    }
    port.drop_all();
  }
};

}  // namespace llorch::sim
