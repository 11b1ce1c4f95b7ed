#include "sim/world/options.h"

#include <fmt/core.h>

#include "sim/kernel/dice.h"

namespace llorch::sim {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;

// Half of the kinds of faults happen in a run, each at a rate of its own.
std::int64_t mean_ms(Dice& dice, std::int64_t low_ms, std::int64_t high_ms) {
  return dice.chance(400) ? dice.between(low_ms, high_ms) : 0;
}
int permille(Dice& dice, int high) { return dice.chance(350) ? static_cast<int>(dice.between(1, high)) : 0; }

FaultOptions draw_faults(Dice& dice) {
  FaultOptions f;
  f.orchestrator_crash_ms = mean_ms(dice, 3'000, 40'000);
  f.orchestrator_hang_ms = mean_ms(dice, 20'000, 80'000);
  f.pool_crash_ms = mean_ms(dice, 10'000, 60'000);
  f.pool_hang_ms = mean_ms(dice, 20'000, 80'000);
  f.worker_crash_ms = mean_ms(dice, 2'000, 20'000);
  f.worker_hang_ms = mean_ms(dice, 10'000, 40'000);
  f.device_lost_ms = mean_ms(dice, 20'000, 80'000);
  f.partition_ms = mean_ms(dice, 8'000, 50'000);
  f.reset_ms = mean_ms(dice, 300, 8'000);
  f.disk_refuses_ms = mean_ms(dice, 10'000, 60'000);
  f.commit_fails = permille(dice, 150);
  f.crash_in_commit = permille(dice, 25);
  f.start_fails = permille(dice, 400);
  f.start_out_of_memory = permille(dice, 300);
  f.start_hangs = permille(dice, 200);
  f.start_slow = permille(dice, 400);
  f.spawn_fails = permille(dice, 200);
  f.exit_slow = permille(dice, 800);
  f.job_fails = permille(dice, 60);
  f.diverges = dice.chance(150) ? 500 : 0;
  return f;
}

void draw_limits(Dice& dice, Options& o) {
  auto& b = o.core;
  b.queue.capacity = dice.chance(300) ? dice.between(2, 5) : 100;
  b.queue.policy = static_cast<config::QueuePolicy>(dice.below(3));
  b.queue.batch_promotion_ms = dice.chance(300) ? dice.between(1'000, 20'000) : 300'000;
  b.scheduling.algorithm = static_cast<config::PlacementAlgorithm>(dice.below(3));
  b.worker_slots = dice.between(1, 4);
  b.workers_per_gpu = dice.between(1, 3);
  b.retry.max_attempts = dice.chance(200) ? dice.between(1, 2) : 5;
  b.timeout.idle_ms = dice.chance(500) ? 10'000 : 60'000;
  b.timeout.queue_ms = dice.chance(100) ? dice.between(2'000, 20'000) : 0;
  b.worker_start_timeout_ms = dice.chance(500) ? 15'000 : 60'000;
  b.memory_patience_ms = dice.chance(500) ? 3'000 : 30'000;
  b.restart.running_jobs = dice.chance(50) ? config::RunningJobs::kFail : config::RunningJobs::kReplay;
  b.heartbeat.interval_ms = dice.chance(500) ? 5'000 : 15'000;
  o.worker_start_timeout_ms = dice.chance(300) ? 10'000 : b.worker_start_timeout_ms;
  o.health_interval_ms = dice.chance(500) ? 500 : 10'000;
  o.stream.retain_ms = dice.chance(300) ? 1'000 : 60'000;
  o.stream.reconnect_grace_ms = dice.chance(500) ? 2'000 : 10'000;
  o.stream.slow_client_timeout_ms = dice.chance(500) ? 3'000 : 30'000;
}

void draw_operations(Dice& dice, Options& o) {
  auto& e = o.core.eviction;
  const std::int64_t policy = dice.below(10);
  e.worker_policy = policy == 0  ? config::EvictionPolicy::kManual
                    : policy < 4 ? config::EvictionPolicy::kLfu
                                 : config::EvictionPolicy::kLru;
  e.worker_idle_ttl_ms = dice.chance(300) ? dice.between(500, 20'000) : 0;
  if (dice.chance(300)) e.vram_threshold = static_cast<double>(dice.between(40, 95)) / 100;
  o.core.restart.worker_crashes_max = dice.chance(500) ? dice.between(1, 5) : 0;
  o.core.restart.worker_crash_window_ms = dice.between(10, 300) * 1'000;
  o.operations.drain_ms = mean_ms(dice, 4'000, 40'000);
  o.operations.reload_ms = mean_ms(dice, 4'000, 40'000);
  o.operations.purge_ms = mean_ms(dice, 3'000, 40'000);
  o.faults.clock_jump_ms = mean_ms(dice, 2'000, 20'000);
}

void draw_placement(Options& o) {
  Dice dice(o.seed, DiceStream::kPlacement);
  if (dice.chance(250)) o.core.scheduling.algorithm = config::PlacementAlgorithm::kPredictedEnd;
  o.core.queue_optimizer = {.enabled = dice.chance(700),
                            .threshold_jobs = dice.below(6),
                            .interval_ms = dice.between(500, 30'000),
                            .max_runtime_ms = 5'000};
  o.work.placements = dice.chance(500) ? static_cast<int>(dice.between(1, 700)) : 0;
}

template <class T>
std::optional<T> maybe(Dice& dice, int permille, std::int64_t low, std::int64_t high) {
  if (!dice.chance(permille)) return std::nullopt;
  return static_cast<T>(dice.between(low, high));
}

void draw_sessions(Options& o) {
  Dice dice(o.seed, DiceStream::kSessions);
  if (dice.chance(500)) {
    auto& s = o.core.sessions;
    s.ttl_ms = dice.between(500, 30'000);
    s.turns_max = dice.between(2, 12);
    s.count_max = dice.chance(300) ? 1 : 10;
    s.token_budget = maybe<std::int64_t>(dice, 500, 20, 300);
    s.time_budget_ms = maybe<std::int64_t>(dice, 300, 100, 10'000);
    s.cost_budget = maybe<double>(dice, 300, 1, 20);
    s.cost_per_prompt_token = 0.01;
    s.cost_per_output_token = 0.05;
    o.work.in_sessions = static_cast<int>(dice.between(100, 1'000));
    o.work.sessions = static_cast<int>(dice.between(1, 4));
    o.operations.session_ms = mean_ms(dice, 500, 20'000);
  }
  if (dice.chance(200)) {
    auto& t = o.core.throttle;
    t.requests_per_second = static_cast<double>(dice.below(8)) / 2;
    t.tokens_per_second = static_cast<double>(dice.below(6) * 10);
    t.burst_seconds = static_cast<double>(dice.between(1, 8));
  }
  if (dice.chance(150)) o.core.quotas.max_concurrent_jobs = dice.between(1, 3);
  if (dice.chance(150)) o.core.quotas.token_budget_daily = dice.between(30, 400);
  if (!dice.chance(300)) return;
  for (const char* caller : {"caller-0", "caller-1"}) {
    o.core.tenants.push_back({.id = caller, .token_file = {}, .throttle = {}, .quotas = {}});
  }
}

// Models that several devices of a pool share, and pools that have as many.
void draw_sharing(Options& o) {
  Dice dice(o.seed, DiceStream::kSharing);
  if (!dice.chance(300)) return;
  for (PoolOptions& pool : o.pools) {
    for (std::int64_t more = dice.below(3); more > 0; --more) {
      pool.devices.push_back({.bytes = dice.between(8, 16) * kGb, .reports_free = dice.chance(800)});
    }
  }
  for (ModelOptions& model : o.models) {
    if (!dice.chance(600)) continue;
    model.devices = dice.between(2, 3);
    model.bytes = dice.between(10, 70) * kGb / 10;
  }
}

}  // namespace

const char* name(InjectedBug bug) {
  switch (bug) {
    case InjectedBug::kNone: return "none";
    case InjectedBug::kAnswerBeforeCommit: return "answer-before-commit";
    case InjectedBug::kForgetRunningJobs: return "forget-running-jobs";
    case InjectedBug::kDispatchTwice: return "dispatch-twice";
    case InjectedBug::kRestoreNewestFirst: return "restore-newest-first";
    case InjectedBug::kFinishTwice: return "finish-twice";
    case InjectedBug::kReplayAppends: return "replay-appends";
    case InjectedBug::kResumeOneLate: return "resume-one-late";
    case InjectedBug::kFreeMemoryAtSignal: return "free-memory-at-signal";
    case InjectedBug::kSpawnTwice: return "spawn-twice";
    case InjectedBug::kStopBusyWorkers: return "stop-busy-workers";
    case InjectedBug::kUnloadRacesRequest: return "unload-races-request";
    case InjectedBug::kEvictsLoading: return "evicts-loading";
    case InjectedBug::kStopIsLost: return "stop-is-lost";
    case InjectedBug::kSwapLosesJobs: return "swap-loses-jobs";
    case InjectedBug::kNoStartBackoff: return "no-start-backoff";
    case InjectedBug::kDrainForgotten: return "drain-forgotten";
    case InjectedBug::kDrainKillsJobs: return "drain-kills-jobs";
    case InjectedBug::kReloadForgotten: return "reload-forgotten";
    case InjectedBug::kPurgeForgotten: return "purge-forgotten";
    case InjectedBug::kPoolNotForgotten: return "pool-not-forgotten";
    case InjectedBug::kRefillSessions: return "refill-sessions";
    case InjectedBug::kSessionsOutlive: return "sessions-outlive";
    case InjectedBug::kNewCallers: return "new-callers";
    case InjectedBug::kRefillQuotas: return "refill-quotas";
    case InjectedBug::kQuotaOneMore: return "quota-one-more";
    case InjectedBug::kRetireEarly: return "retire-early";
    case InjectedBug::kFirstDeviceOnly: return "first-device-only";
    case InjectedBug::kOutlivesItsDevice: return "outlives-its-device";
    case InjectedBug::kNeverRegisters: return "never-registers";
    case InjectedBug::kSilentPoolServes: return "silent-pool-serves";
    case InjectedBug::kUnreachablePoolServes: return "unreachable-pool-serves";
    case InjectedBug::kPlacementIgnored: return "placement-ignored";
    case InjectedBug::kTimesOutEarly: return "times-out-early";
    case InjectedBug::kTimesOutLate: return "times-out-late";
    case InjectedBug::kGivesUpEarly: return "gives-up-early";
    case InjectedBug::kCancelsInWordsOnly: return "cancels-in-words-only";
    case InjectedBug::kVersionForgotten: return "version-forgotten";
    case InjectedBug::kTenantForgotten: return "tenant-forgotten";
    case InjectedBug::kStreamsForgotten: return "streams-forgotten";
    case InjectedBug::kRefusesCommitted: return "refuses-committed";
    case InjectedBug::kLoseSyncs: return "lose-syncs";
    case InjectedBug::kRowsBeforeKeys: return "rows-before-keys";
    case InjectedBug::kKeepKeys: return "keep-keys";
    case InjectedBug::kRefuseInDoubt: return "refuse-in-doubt";
    case InjectedBug::kTrustTheLog: return "trust-the-log";
    case InjectedBug::kDropFromFailedGroup: return "drop-from-failed-group";
  }
  return "none";
}

Options swarm_options(std::uint64_t seed) {
  Dice dice(seed, DiceStream::kOptions);
  Options o;
  o.seed = seed;
  draw_limits(dice, o);
  const std::int64_t models = dice.between(1, 4);
  for (std::int64_t m = 0; m < models; ++m) {
    o.models.push_back({.name = std::string(1, static_cast<char>('a' + m)),
                        .bytes = dice.chance(30) ? 90 * kGb : dice.between(20, 75) * kGb / 10,
                        .load_ms = dice.between(100, 4'000),
                        .broken = dice.chance(40)});
  }
  const std::int64_t pools = dice.between(1, 3);
  for (std::int64_t p = 0; p < pools; ++p) {
    PoolOptions pool;
    const std::int64_t devices = dice.between(1, 2);
    for (std::int64_t d = 0; d < devices; ++d) {
      pool.devices.push_back({.bytes = dice.between(8, 16) * kGb, .reports_free = dice.chance(800)});
    }
    o.pools.push_back(std::move(pool));
  }
  o.core.workers_per_gpu = std::max<std::int64_t>(1, o.core.workers_per_gpu);
  for (std::size_t p = 0; p < o.pools.size(); ++p) {
    if (dice.chance(500)) o.core.pool_endpoints.push_back(fmt::format("http://pool-{}", p));
  }
  o.network.delay_us_max = dice.between(100, 20 * kMs);
  o.network.slow_permille = dice.chance(400) ? static_cast<int>(dice.between(1, 100)) : 0;
  o.faults = draw_faults(dice);
  auto& w = o.work;
  w.clients = static_cast<int>(dice.between(1, 4));
  w.jobs = static_cast<int>(dice.between(3, 18));
  w.arrivals_ms = dice.between(100, 20'000);
  w.tokens_max = dice.between(2, 40);
  w.token_ms = dice.between(2, 150);
  w.batch = static_cast<int>(dice.below(700));
  w.resumes = static_cast<int>(dice.below(1000));
  w.never_reads = static_cast<int>(dice.below(300));
  w.disconnects = static_cast<int>(dice.below(600));
  w.stalls = static_cast<int>(dice.below(200));
  w.cancels = static_cast<int>(dice.below(300));
  w.deadlines = static_cast<int>(dice.below(200));
  w.timeouts = static_cast<int>(dice.below(200));
  o.chaos_ms = dice.between(5'000, 40'000);
  draw_operations(dice, o);
  o.fresh_disk = dice.chance(60);
  o.checkpoint_pages = dice.between(3, 80);
  o.power_failures = static_cast<int>(dice.below(1'000));
  draw_placement(o);
  draw_sessions(o);
  draw_sharing(o);
  Dice deregistrations(seed, DiceStream::kDeregistrations);
  o.operations.deregister_ms = deregistrations.chance(250) ? deregistrations.between(4'000, 40'000) : 0;
  Dice bytes(seed, DiceStream::kBytes);
  o.cuts = bytes.chance(600) ? static_cast<int>(bytes.between(1, 1'000)) : 0;
  if (bytes.chance(150)) o.stream.buffer_bytes_max = bytes.between(500, 20'000);
  Dice builds(seed, DiceStream::kBuilds);
  if (builds.chance(300)) o.builds = 2;
  Dice one_way(seed, DiceStream::kOneWay);
  o.faults.one_way_ms = one_way.chance(300) ? one_way.between(8'000, 50'000) : 0;
  Dice retention(seed, DiceStream::kRetention);
  if (retention.chance(250)) o.retention_ms = retention.between(500, 30'000);
  return o;
}

Options quiet_options() {
  Options o;
  o.models = {{.name = "a", .bytes = 6 * kGb, .load_ms = 1'000}, {.name = "b", .bytes = 6 * kGb, .load_ms = 1'000}};
  o.pools = {{.devices = {{.bytes = 10 * kGb}}}};
  o.core.pool_endpoints = {"http://pool-0"};
  o.work.jobs = 0;
  o.work.clients = 1;
  o.chaos_ms = 0;
  return o;
}

}  // namespace llorch::sim
