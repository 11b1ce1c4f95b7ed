#include "sim/world/world.h"

#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/core/testing/describe.h"
#include "sim/world/chaos.h"
#include "wire/json.h"

namespace llorch::sim {
namespace {

// A run that needs more is going round in circles.
constexpr std::int64_t kEventsMax = 3'000'000;
constexpr std::int64_t kLooksEvery = 8;

// A injected bug that is a value of the configuration, or that only a rare coincidence of faults shows.
Options with_bug(Options o) {
  if (o.bug == InjectedBug::kTrustTheLog) {
    o.faults.orchestrator_crash_ms = 1'500;
    o.faults.disk_refuses_ms = 4'000;
    o.faults.commit_fails = 100;
    o.faults.crash_in_commit = 25;
  }
  if (o.bug == InjectedBug::kSilentPoolServes) o.faults.pool_hang_ms = o.faults.partition_ms = 6'000;
  if (o.bug == InjectedBug::kNoStartBackoff) o.core.retry.initial_delay_ms = o.core.retry.max_delay_ms = 1;
  return o;
}

void mix(std::uint64_t& hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
}
void mix(std::uint64_t& hash, std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3; }

}  // namespace

World::World(Options options_in, bool keep_trace)
    : options(with_bug(std::move(options_in))),
      dice_processes(options.seed, DiceStream::kProcesses),
      dice_store(options.seed, DiceStream::kStore),
      dice_work(options.seed, DiceStream::kWorkload),
      dice_faults(options.seed, DiceStream::kFaults),
      dice_operations(options.seed, DiceStream::kOperations),
      dice_bytes(options.seed, DiceStream::kBytes),
      dice_builds(options.seed, DiceStream::kBuilds),
      network(loop, Dice(options.seed, DiceStream::kNetwork), options.network),
      oracle(options, loop),
      device(options.seed, options.fresh_disk ? empty_disk() : prepared_disk()),
      store_entropy(options.seed),
      orchestrator(std::make_unique<Orchestrator>(*this)),
      keep_trace_(keep_trace) {
  device.forbid(kPayloadNeedle);
  if (options.bug == InjectedBug::kLoseSyncs) device.ignore_syncs("state/orchestrator.db-wal");
  if (options.bug == InjectedBug::kRowsBeforeKeys) device.ignore_syncs("state/payload.keys");
  for (std::size_t p = 0; p < options.pools.size(); ++p) pools.push_back(std::make_unique<Pool>(*this, p));
  operators = std::make_unique<Operator>(*this);
}

World::~World() {
  // Streams report to their hub until they are gone: first everything that may hold one.
  loop.clear();
  orchestrator->shut_down();
  network.shut_down();
  pools.clear();
  clients.clear();
  operators.reset();
}

void World::trace(std::string_view what, std::string_view who, std::int64_t n) {
  mix(hash_, static_cast<std::uint64_t>(loop.now_us()));
  mix(hash_, what);
  mix(hash_, who);
  mix(hash_, static_cast<std::uint64_t>(n));
  if (keep_trace_) text += fmt::format("{:>12} {} {} {}\n", loop.now_us(), what, who, n);
}

void World::trace_event(const orchestratord::core::Event& event) {
  constexpr const char* kNames[] = {"Submit",
                                    "CancelRequested",
                                    "QueryJob",
                                    "QueryJobs",
                                    "QueryPools",
                                    "QueryGauges",
                                    "QueryPlacement",
                                    "QueryPreview",
                                    "CountArrival",
                                    "OpenSession",
                                    "QuerySession",
                                    "QuerySessions",
                                    "CloseSession",
                                    "StreamCounted",
                                    "Restored",
                                    "Committed",
                                    "CommitFailed",
                                    "PoolSeen",
                                    "PoolUnreachable",
                                    "PoolDeregistered",
                                    "WorkerReady",
                                    "WorkerFailed",
                                    "StartWorkerAnswered",
                                    "DrainPool",
                                    "UndrainPool",
                                    "ReloadPool",
                                    "PurgePool",
                                    "QueryPoolHealth",
                                    "SetLimits",
                                    "ExecuteStarted",
                                    "ExecuteProgress",
                                    "ExecuteEnded",
                                    "QueueReviewed",
                                    "Tick",
                                    "Shutdown"};
  static_assert(std::size(kNames) == std::variant_size_v<orchestratord::core::Event>);
  trace(kNames[event.index()], "");
  const auto* seen = std::get_if<orchestratord::core::PoolSeen>(&event);
  if (!keep_trace_ || seen == nullptr) return;
  text += fmt::format("{:>14} {}", "", seen->state.pool_id);
  for (const auto& gpu : seen->state.gpus) {
    text += fmt::format(" [{}: {} of {} free{}]", gpu.gpu_id, gpu.vram_available_bytes, gpu.vram_total_bytes,
                        gpu.healthy ? "" : ", lost");
  }
  for (const auto& w : seen->state.workers) {
    text += fmt::format(" {}:{}:{}", w.worker_id.substr(0, 15), w.gpu_id, wire::enum_name(w.status));
  }
  text += '\n';
}

void World::trace_command(const orchestratord::core::Command& command) {
  mix(hash_, command.index());
  if (!keep_trace_) return;
  const std::string line = orchestratord::core::describe(command);
  mix(hash_, line);
  if (!line.starts_with("Count ")) text += fmt::format("{:>12}   {}\n", loop.now_us(), line);
}

// ---- look-ups -------------------------------------------------------------------------------------------------------

std::string World::draw_build() { return fmt::format("build-{}", dice_builds.below(options.builds)); }

HttpServer* World::server_at(const std::string& address) const {
  for (const auto& pool : pools) {
    if (pool->endpoint() == address) return pool.get();
    for (WorkerProcess* worker : pool->workers()) {
      if (worker->uri() == address) return worker;
    }
  }
  return nullptr;
}

int World::model_of(const std::string& model_ref) const {
  for (std::size_t m = 0; m < options.models.size(); ++m) {
    if (model_ref_of(options.models[m].name) == model_ref) return static_cast<int>(m);
  }
  return 0;
}

// ---- running --------------------------------------------------------------------------------------------------------

void World::start() {
  for (const auto& pool : pools) {
    loop.at(dice_processes.below(500 * kMs), [&pool] { pool->start(); });
  }
  loop.at(dice_processes.below(500 * kMs), [this] { orchestrator->start(); });
  draw_workload();
}

void World::add_client(ClientPlan plan) { clients.push_back(std::make_unique<Client>(*this, std::move(plan))); }

wire::Placement World::draw_placement(Dice& dice) const {
  using wire::PlacementMode;
  const auto any_pool = [&] { return fmt::format("pool-{}", dice.below(static_cast<std::int64_t>(pools.size()))); };
  switch (dice.below(3)) {
    case 0: return {.mode = PlacementMode::kPin, .pin_pool_id = any_pool()};
    case 1: return {.mode = PlacementMode::kPrefer, .prefer_pools = {any_pool()}, .allow_fallback = dice.chance(600)};
    default: return {.avoid_pools = {any_pool()}};
  }
}

void World::draw_workload() {
  Dice& dice = dice_work;
  Dice placements(options.seed, DiceStream::kPlacement), sessions(options.seed, DiceStream::kSessions);
  const WorkloadOptions& w = options.work;
  for (int j = 0; j < w.jobs; ++j) {
    ClientPlan plan;
    JobRequest& r = plan.request;
    r.task_id = job_name(j);
    r.model = static_cast<int>(dice.below(static_cast<std::int64_t>(options.models.size())));
    r.priority = dice.chance(w.batch) ? wire::Priority::kBatch : wire::Priority::kInteractive;
    r.on_disconnect = dice.chance(w.resumes) ? wire::OnDisconnect::kResume : wire::OnDisconnect::kCancel;
    r.max_tokens = dice.between(1, w.tokens_max);
    r.seed = static_cast<std::uint64_t>(dice.below(1'000'000'000));
    if (dice.chance(w.deadlines)) r.deadline_ms = dice.between(1, 60'000);
    if (dice.chance(w.timeouts)) r.timeout_ms = dice.between(50, 20'000);
    if (placements.chance(w.placements)) r.placement = draw_placement(placements);
    if (sessions.chance(w.in_sessions)) r.session = session_name(sessions.below(w.sessions));
    plan.submit_at_ms = dice.below(w.arrivals_ms) + 1;
    plan.polls = dice.chance(w.never_reads);
    while (dice.chance(w.disconnects) && plan.disconnects_at.size() < 4) {
      plan.disconnects_at.push_back(dice.between(1, w.tokens_max));
    }
    std::sort(plan.disconnects_at.begin(), plan.disconnects_at.end());
    if (dice.chance(w.stalls)) plan.stalls_at = dice.between(1, w.tokens_max);
    if (dice.chance(w.cancels)) plan.cancels_after_ms = dice.chance(300) ? dice.below(20) : dice.below(10'000);
    add_client(std::move(plan));
  }
}

void World::crash_orchestrator() {
  if (!orchestrator_process.alive) return;
  orchestrator->crash();
  loop.at(loop.now_us() + dice_faults.between(20, 4'000) * kMs, [this] { orchestrator->start(); });
}

bool World::step() {
  if (!oracle.violation().empty()) return false;
  if (loop.events_count() >= kEventsMax) oracle.violate("too many events: something goes round in circles");
  return loop.step();
}

void World::run_for(std::int64_t ms) {
  bool over = false;
  loop.at(loop.now_us() + ms * kMs, [&over] { over = true; });
  while (!over && step()) {
  }
  if (!over) loop.clear();  // it refers to this frame
}

void World::run() {
  Chaos chaos(*this);
  chaos.begin();
  operators->begin();
  run_for(options.chaos_ms);
  heal();
  run_to_the_end();
}

void World::heal() {
  healed_ = true;
  trace("heal", "");
  network.heal();
  for (const auto& pool : pools) pool->heal();
  for (const auto& client : clients) client->stop_stalling();
  operators->heal();
}

bool World::everything_ended() const {
  if (!orchestrator_process.alive) return false;
  for (const auto& client : clients) {
    if (!client->done()) return false;
  }
  for (const auto& pool : pools) {
    for (const WorkerProcess* worker : pool->workers()) {
      if (oracle.is_purged(worker->id())) return false;
    }
  }
  return !oracle.reloads() && std::all_of(disk.rows.begin(), disk.rows.end(),
                                          [](const auto& item) { return wire::is_terminal(item.second.status); });
}

void World::run_to_the_end() {
  const std::int64_t begin_ms = loop.now_ms();
  for (std::int64_t i = 0; loop.now_ms() - begin_ms < kDrainBoundMs; ++i) {
    if (i % kLooksEvery == 0 && everything_ended()) break;
    if (!step()) break;
  }
  drain_ms_ = loop.now_ms() - begin_ms;
  if (!oracle.violation().empty()) return;
  oracle.check_end(disk);
  orchestrator->store_reopens();
  for (const auto& client : clients) {
    if (!client->done()) oracle.violate("a client waits for ever: " + client->process().name);
  }
  for (const auto& pool : pools) {
    for (const WorkerProcess* worker : pool->workers()) {
      if (oracle.is_purged(worker->id())) oracle.violate("a purged worker never leaves: " + worker->id());
    }
  }
}

}  // namespace llorch::sim
