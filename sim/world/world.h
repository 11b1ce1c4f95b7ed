#pragma once
// The whole system of one run: virtual time, network, disk, orchestratord, pools, clients, and the oracle that watches.
// Everything follows from the options; the same options give the same events, bit for bit.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"
#include "sim/check/oracle.h"
#include "sim/kernel/dice.h"
#include "sim/kernel/loop.h"
#include "sim/kernel/network.h"
#include "sim/world/client.h"
#include "sim/world/disk.h"
#include "sim/world/operator.h"
#include "sim/world/options.h"
#include "sim/world/orchestrator.h"
#include "sim/world/pool.h"
#include "sim/world/store.h"

namespace llorch::sim {

struct World {
  // `keep_trace`: every event and command as text, in `text`.
  explicit World(Options options_in, bool keep_trace = false);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // ---- running ----
  // Starts everything and draws the workload.
  void start();
  void add_client(ClientPlan plan);
  // Faults until chaos_ms, then none; returns when everything has ended, a rule is broken or kDrainBoundMs has passed.
  void run();
  // Runs for this much virtual time or until a rule is broken.
  void run_for(std::int64_t ms);
  // No fault from now on; what is cut off, down or hung comes back.
  void heal();
  // After heal(): until every client knows how its job ended. Then the final checks.
  void run_to_the_end();

  // ---- what the parts need ----
  const FaultOptions& faults() const { return healed_ ? no_faults_ : options.faults; }
  const FaultOptions& faults_ever() const { return options.faults; }
  bool healed() const { return healed_; }
  bool disk_refuses() const { return !healed_ && loop.now_ms() < disk_refuses_until_ms; }
  void crash_orchestrator();
  // Whoever runs there; null: nobody.
  HttpServer* server_at(const std::string& address) const;
  // What a pool is that starts now: it may have been updated.
  std::string draw_build();
  int model_of(const std::string& model_ref) const;
  void trace(std::string_view what, std::string_view who, std::int64_t n = 0);
  void trace_event(const orchestratord::core::Event& event);
  void trace_command(const orchestratord::core::Command& command);

  // ---- results ----
  std::uint64_t hash() const { return hash_; }
  std::int64_t drain_ms() const { return drain_ms_; }
  std::string text;

  const Options options;
  Loop loop;
  Dice dice_processes, dice_store, dice_work, dice_faults, dice_operations, dice_bytes, dice_builds;
  Network network;
  Oracle oracle;
  orchestratord::store::testing::FaultyDisk device;  // of orchestratord's host
  KeyWatch store_entropy;
  bool power_fails_next = false;                  // the next crash of orchestratord takes the machine with it
  std::map<std::string, std::int64_t> bug_shift;  // by job: tokens that a bug has a worker send before its own
  Disk disk;
  DiskCheck disk_check{*this};
  std::int64_t store_groups = 0;
  std::int64_t disk_refuses_until_ms = 0;
  orchestratord::store::testing::Fault disk_fault{};
  Process orchestrator_process{.name = "orchestratord", .host = 0};
  std::unique_ptr<Orchestrator> orchestrator;
  std::vector<std::unique_ptr<Pool>> pools;
  std::vector<std::unique_ptr<Client>> clients;
  std::unique_ptr<Operator> operators;

 private:
  bool step();
  bool everything_ended() const;
  wire::Placement draw_placement(Dice& dice) const;
  void draw_workload();

  const FaultOptions no_faults_;
  const bool keep_trace_;
  bool healed_ = false;
  std::uint64_t hash_ = 0xCBF29CE484222325;
  std::int64_t drain_ms_ = 0;
};

}  // namespace llorch::sim
