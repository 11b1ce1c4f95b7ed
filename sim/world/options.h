#pragma once
// What one run consists of. swarm_options() draws all of it from a seed: every run has its own subset of faults at its own
// rates, because faults that always come together hide each other.
#include <cstdint>
#include <string>
#include <vector>

#include "orchestratord/core/config.h"
#include "sim/kernel/network.h"

namespace llorch::sim {

// A bug put in on purpose, at the seam between a core and the world, to show that the checkers find its kind.
enum class InjectedBug : std::uint8_t {
  kNone,
  kAnswerBeforeCommit,     // store: 202 without waiting for the disk
  kForgetRunningJobs,      // core: a restart brings back only jobs that were queued
  kDispatchTwice,          // core: a job goes to its worker twice
  kRestoreNewestFirst,     // queue: the order of arrival is lost over a restart
  kFinishTwice,            // store: an ending does not stick, the job runs again after a restart
  kReplayAppends,          // stream: a retried job's tokens are not compared with the ones held, but added
  kResumeOneLate,          // stream: a reconnecting client misses an event
  kFreeMemoryAtSignal,     // lifecycle: memory counts as free when the process is told to go
  kSpawnTwice,             // lifecycle: one start spawns two processes
  kStopBusyWorkers,        // lifecycle: a worker that has no free slot is taken for hung
  kLoseSyncs,              // store: it answers before its log is synced
  kRowsBeforeKeys,         // store: keys are not synced before the rows that need them
  kKeepKeys,               // store: a key is not overwritten when its job is over
  kRefuseInDoubt,          // store: an admission whose commit failed is refused though a restart may find it
  kTrustTheLog,            // store: a start builds on what a failed sync left
  kDropFromFailedGroup,    // store: the last of a failed group gets no answer
  kUnloadRacesRequest,     // eviction: the idle time is looked at before a request comes, the stop follows after it
  kEvictsLoading,          // eviction: a worker that loads is taken for idle
  kStopIsLost,             // eviction: the worker that makes room is never told to go
  kDrainForgotten,         // drain: a restart does not remember it
  kDrainKillsJobs,         // drain: workers are stopped under their jobs
  kReloadForgotten,        // reload: a restart does not remember it
  kPurgeForgotten,         // purge: a restart does not remember it
  kPoolNotForgotten,       // pools: a deregistration is answered, and the disk is not told
  kRefillSessions,         // sessions: a restart forgets what their jobs have used
  kSessionsOutlive,        // sessions: they age at a third of the speed
  kNewCallers,             // throttle: it takes every submission for another caller's
  kRefillQuotas,           // quotas: a restart forgets what their tenants' jobs took today
  kQuotaOneMore,           // quotas: a tenant may run one job more
  kRetireEarly,            // retention: finished jobs leave after half of their time
  kFirstDeviceOnly,        // preflight: a worker over several devices is counted on the first of them
  kOutlivesItsDevice,      // lifecycle: a device takes down the workers whose first device it is
  kNeverRegisters,         // registration: the pool never says that it is there
  kSilentPoolServes,       // pool registry: a pool that says nothing any more stays healthy
  kUnreachablePoolServes,  // pool registry: a pool that reports stays healthy though calls to it fail
  kPlacementIgnored,       // placement: every worker of the model will do
  kTimesOutEarly,          // timeouts: half of the limit is the limit
  kTimesOutLate,           // timeouts: thrice the limit is the limit
  kGivesUpEarly,           // retry: one failed attempt uses them all up
  kCancelsInWordsOnly,     // cancellation: it is answered, and the job runs on
  kVersionForgotten,       // shell: a restart does not remember which version a job was begun on
  kTenantForgotten,        // shell: a restart does not remember whose a job is
  kStreamsForgotten,       // shell: a restart does not reopen the streams of its jobs
  kRefusesCommitted,       // shell: a job that is on disk is refused
  // No rule of the oracle is broken by these; the scenarios of the field's bugs find them.
  kSwapLosesJobs,   // eviction: jobs sent after a swap do not arrive
  kNoStartBackoff,  // start control: a broken model is loaded again at once, and again
};
inline constexpr int kBugsCount = static_cast<int>(InjectedBug::kNoStartBackoff) + 1;
inline constexpr int kSwarmBugsCount = static_cast<int>(InjectedBug::kRefusesCommitted) + 1;
const char* name(InjectedBug bug);

struct ModelOptions {
  std::string name;
  std::int64_t bytes = 0;  // of each device, predicted by the plan
  std::int64_t load_ms = 0;
  bool broken = false;       // its file cannot be loaded
  std::int64_t devices = 1;  // that share it
};

struct DeviceOptions {
  std::int64_t bytes = 0;
  bool reports_free = true;  // as a driver does; the CPU device has only its budget
};
struct PoolOptions {
  std::vector<DeviceOptions> devices;
};

// Mean times between faults of a kind while faults happen; 0: none of this kind. Chances are per mille.
struct FaultOptions {
  std::int64_t orchestrator_crash_ms = 0;
  std::int64_t orchestrator_hang_ms = 0;
  std::int64_t pool_crash_ms = 0;
  std::int64_t pool_hang_ms = 0;
  std::int64_t worker_crash_ms = 0;
  std::int64_t worker_hang_ms = 0;
  std::int64_t device_lost_ms = 0;
  std::int64_t partition_ms = 0;
  std::int64_t one_way_ms = 0;  // orchestratord reaches a pool's host no more, which reaches orchestratord
  std::int64_t reset_ms = 0;
  std::int64_t disk_refuses_ms = 0;  // for a while, as when it is full
  std::int64_t clock_jump_ms = 0;    // somebody sets a host's wall clock
  int commit_fails = 0;              // one group commit
  int crash_in_commit = 0;           // orchestratord dies while or right after the disk syncs
  int start_fails = 0;               // a worker exits while it loads
  int start_out_of_memory = 0;
  int start_hangs = 0;
  int start_slow = 0;
  int spawn_fails = 0;
  int exit_slow = 0;  // the memory of a dead process is held for seconds
  int job_fails = 0;  // the engine refuses one job in the middle
  int diverges = 0;   // a worker of these computes other tokens than the rest
};

struct WorkloadOptions {
  int clients = 3;
  int jobs = 10;
  std::int64_t arrivals_ms = 10'000;  // jobs come within this time
  std::int64_t tokens_max = 24;
  std::int64_t token_ms = 20;
  int batch = 300;        // per mille of the jobs
  int resumes = 500;      // on_disconnect: resume
  int never_reads = 100;  // polls instead
  int disconnects = 300;  // breaks its stream on purpose
  int stalls = 50;        // stops reading for a while
  int cancels = 100;
  int deadlines = 50;
  int timeouts = 50;
  int placements = 0;  // pin, prefer or avoid a pool
  int in_sessions = 0;
  int sessions = 2;  // how many ids there are for those
};

// What an operator does, while faults happen; mean times, 0: nothing of this kind.
struct OperationOptions {
  std::int64_t drain_ms = 0;  // and as often takes one back
  std::int64_t reload_ms = 0;
  std::int64_t purge_ms = 0;
  std::int64_t deregister_ms = 0;  // removes a pool, which comes back
  std::int64_t session_ms = 0;     // of a client: makes, touches, looks at or ends a session
};

struct Options {
  std::uint64_t seed = 0;
  orchestratord::core::CoreConfig core;
  config::StreamConfig stream;
  std::vector<ModelOptions> models;
  std::vector<PoolOptions> pools;
  std::int64_t builds = 1;                        // how many the pools run, each one of them after each start
  std::int64_t worker_start_timeout_ms = 60'000;  // the pools' own
  std::int64_t health_interval_ms = 10'000;
  std::int64_t drain_grace_ms = 10'000;
  NetworkOptions network;
  int cuts = 0;  // per mille of what is written to an HTTP connection that arrives in pieces
  FaultOptions faults;
  WorkloadOptions work;
  OperationOptions operations;
  bool fresh_disk = false;                             // the first start makes the database
  std::int64_t retention_ms = 7LL * 24 * 3600 * 1000;  // of finished jobs
  std::int64_t checkpoint_pages = 30;                  // of the store's log
  int power_failures = 500;                            // per mille of orchestratord's crashes; the others are kills
  std::int64_t chaos_ms = 30'000;                      // after this no fault happens any more
  InjectedBug bug = InjectedBug::kNone;
};

Options swarm_options(std::uint64_t seed);
// A quiet world for scripted scenarios: no faults, one pool with one device, no workload.
Options quiet_options();

// After the last fault everything accepted has ended and every client knows within this virtual time: five attempts of
// jobs whose worker hangs until the idle limit, with starts that time out twice before each, is the longest known way.
inline constexpr std::int64_t kDrainBoundMs = 3'600'000;

}  // namespace llorch::sim
