#pragma once
// The registry of workers and every rule about them, as a pure core: events in, commands out.
// No threads, sockets, processes or clocks. It decides nothing about placement, retries or eviction (SYS-6.2.1).
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/id.h"
#include "base/log_limiter.h"
#include "base/result.h"
#include "pool_managerd/capability_matcher/preflight.h"
#include "pool_managerd/gpu_inventory/device.h"
#include "pool_managerd/model_catalog/model_plan.h"
#include "pool_managerd/worker_lifecycle/failure.h"
#include "wire/pool.h"
#include "wire/worker.h"

namespace llorch::pool_managerd::worker_lifecycle {

using base::Time;
using wire::WorkerStatus;

// starting -> ready | failed; ready <-> busy; ready | busy -> draining; any -> failed (ORCH-1004).
bool may_become(WorkerStatus from, WorkerStatus to);

struct LifecycleConfig {
  std::string pool_id;
  std::int64_t start_timeout_ms = 60'000;
  std::int64_t health_interval_ms = 10'000;
  int health_misses_max = 3;
  std::int64_t drain_grace_ms = 30'000;  // from POST /shutdown to SIGTERM
  std::int64_t term_grace_ms = 5'000;    // from SIGTERM to SIGKILL
  std::int64_t workers_per_gpu = 1;
};

// A request that waits for an answer; the shell knows whose.
enum class RequestId : std::uint64_t {};

// ---- events ----
struct DevicesRead {
  std::vector<gpu_inventory::Device> devices;
};
struct StartAsked {
  RequestId request;
  wire::StartWorkerRequest wanted;
  base::Result<model_catalog::ModelPlan> model;  // of the file, for the wanted shape
  base::CorrelationId correlation_id;
};
struct StopAsked {
  RequestId request;
  base::WorkerId worker_id;
  bool drain = false;  // finish active jobs however long they take, then exit
};
struct ReadyReceived {
  RequestId request;
  wire::ReadyCallback callback;
};
struct ProgressReceived {
  RequestId request;
  wire::LoadProgress progress;
};
struct Spawned {
  base::WorkerId worker_id;
  std::int64_t pid = 0;
};
struct SpawnFailed {
  base::WorkerId worker_id;
  base::Error error;
};
struct ProbeEnded {
  base::WorkerId worker_id;
  std::uint64_t probe = 0;
  std::optional<wire::WorkerHealth> answer;  // absent: none in time, or not a worker's
};
// Its process has begun to end, or has gone and its container still holds its memory. Exited follows.
struct Leaving {
  base::WorkerId worker_id;
};
struct Exited {
  base::WorkerId worker_id;
  ExitFacts facts;
};
// Answer to CheckDigest: the files have another digest than the worker told.
struct DigestDisputed {
  base::WorkerId worker_id;
};
// Stops every worker and refuses new ones from here on. A second one kills what is left at once.
struct ShutdownAsked {};
struct Tick {};
using Event = std::variant<DevicesRead, StartAsked, StopAsked, ReadyReceived, ProgressReceived, Spawned, SpawnFailed,
                           ProbeEnded, Leaving, Exited, DigestDisputed, ShutdownAsked, Tick>;

// ---- commands ----
struct Answer {
  RequestId request;
  int http_status = 200;
  std::string body;
};
struct Refuse {
  RequestId request;
  base::Error error;
};
// Answer with Spawned or SpawnFailed before the next event.
struct Spawn {
  base::WorkerId worker_id;
  std::string model_ref;
  std::string gpu_id;                  // device mask
  std::vector<std::string> gpu_uuids;  // by rank; empty: the driver does not tell, or the device is no GPU
  std::string spawn_token;
  model_catalog::ModelPlan model;
  std::vector<std::int64_t> memory_budget_bytes;  // by rank
  base::CorrelationId correlation_id;
};
struct Probe {
  base::WorkerId worker_id;
  std::string uri;
  std::uint64_t probe = 0;
};
struct PostShutdown {
  base::WorkerId worker_id;
  std::string uri;
};
enum class Kill : std::uint8_t { kTerm, kKill };
struct SendSignal {
  base::WorkerId worker_id;
  Kill kill;
};
struct ReportReady {
  wire::WorkerReady report;
};
struct ReportFailed {
  wire::WorkerFailed report;
  base::CorrelationId correlation_id;
};
// A worker told another digest of its model's files than the one it was started with. Hash the files, and send
// DigestDisputed if theirs is not the one it told.
struct CheckDigest {
  base::WorkerId worker_id;
  std::string path;
  engine::io::StampedDigest digest;
};
// The state changed in a way that orchestratord should see before the next heartbeat.
struct PushState {};
// A finding for the log: `event` is a stable code.
struct Note {
  std::string_view event;
  bool warn = false;
  std::string human;
  base::WorkerId worker_id;  // may be empty
  std::string gpu_id;
  std::int64_t bytes = 0;
  base::CorrelationId correlation_id;
  std::int64_t left_out = 0;  // of this event since its last note
};
using Command = std::variant<Answer, Refuse, Spawn, Probe, PostShutdown, SendSignal, ReportReady, ReportFailed,
                             CheckDigest, PushState, Note>;

// Totals since the process began, for /metrics.
struct Counters {
  std::map<std::string, std::int64_t> starts_by_outcome;                 // success | refused | failed
  std::map<std::string, std::int64_t> stops_by_reason;                   // evict | drain | crash
  std::map<std::pair<std::string, std::string>, std::int64_t> failures;  // (category, gpu_id), ordered stops excluded
  std::map<std::pair<std::string, std::string>, std::int64_t> device_faults;  // (gpu_id, kind)
  std::map<std::string, std::int64_t>
      restarts_by_reason;  // starts of what failed there before, by that failure's category
};

// Not thread-safe: one owner steps it.
class Lifecycle {
 public:
  Lifecycle(LifecycleConfig config, base::Entropy& entropy);

  // Appends what is to be done. Never blocks, never fails: what cannot be done is a Refuse.
  void step(const Event& event, Time now, std::vector<Command>& out);

  // When the next Tick is needed (monotonic); nothing if no timer runs.
  std::optional<std::int64_t> next_wake_ms() const;
  bool empty() const { return workers_.empty(); }

  // GPUs and workers of GET /v2/state, ordered by id.
  std::vector<wire::GpuInfo> gpus() const;
  std::vector<wire::WorkerInfo> workers() const;
  std::optional<wire::WorkerInfo> worker(const base::WorkerId& id) const;
  std::int64_t allocated_bytes(const std::string& gpu_id) const { return use_of(gpu_id).allocated_bytes; }
  const Counters& counters() const { return counters_; }

 private:
  enum class Stopping : std::uint8_t { kNo, kAsked, kTerminated, kKilled };
  // A worker's bytes on one device: while it starts those it was granted, afterwards those it reported.
  struct Share {
    std::string gpu_id;
    std::int64_t bytes = 0;
  };
  struct Worker {
    wire::WorkerInfo info;
    wire::StartWorkerRequest wanted;
    std::string spawn_token;
    base::CorrelationId correlation_id;
    std::vector<Share> shares;  // by rank
    std::int64_t started_mono_ms = 0;
    std::string model_path;
    std::optional<engine::io::StampedDigest> digest_told;  // with its start, where it was known
    bool became_ready = false;
    Cause cause = Cause::kNone;
    Stopping stopping = Stopping::kNo;
    std::optional<std::int64_t> deadline_ms;  // of the start, or of the current step of stopping
    std::optional<std::int64_t> next_probe_ms;
    std::uint64_t probe = 0;  // the one in flight; 0 = none
    int misses = 0;
    std::optional<RequestId> start_request;
    std::optional<RequestId> ready_request;
    wire::ReadyCallback ready;

    bool is_on(const std::string& gpu_id) const;
    std::int64_t bytes() const;  // on all its devices
  };
  using Out = std::vector<Command>;

  void on(const DevicesRead&, Time, Out&);
  void on(const StartAsked&, Time, Out&);
  void on(const StopAsked&, Time, Out&);
  void on(const ReadyReceived&, Time, Out&);
  void on(const ProgressReceived&, Time, Out&);
  void on(const Spawned&, Time, Out&);
  void on(const SpawnFailed&, Time, Out&);
  void on(const ProbeEnded&, Time, Out&);
  void on(const Leaving&, Time, Out&);
  void on(const Exited&, Time, Out&);
  void on(const DigestDisputed&, Time, Out&);
  void on(const ShutdownAsked&, Time, Out&);
  void on(const Tick&, Time, Out&);

  // Bytes that each rank may hold, or why the worker may not start.
  base::Result<std::vector<std::int64_t>> admit(const StartAsked& event) const;
  base::Result<> check_not_loading(const wire::StartWorkerRequest& wanted, const std::vector<std::string>& mask) const;
  base::Result<const Worker*> starting_worker(const std::string& worker_id, const std::string& spawn_token) const;
  base::Result<> check_ready(const wire::ReadyCallback& callback) const;
  void start(const StartAsked& event, const std::vector<std::int64_t>& grants, Time now, Out& out);
  void become_ready(Worker& worker, Time now, Out& out);
  void leave_device(const gpu_inventory::Device& device, Time now, Out& out);
  void begin_stop(Worker& worker, Cause cause, Time now, Out& out);
  void fail_worker(Worker& worker, Cause cause, Out& out);
  void probe(Worker& worker, Out& out);
  void set_status(Worker& worker, WorkerStatus status);
  void remember_gone(const std::string& worker_id);
  void credit(const Worker& worker);
  const gpu_inventory::Device* device(const std::string& gpu_id) const;
  gpu_inventory::DeviceUse use_of(const std::string& gpu_id) const;
  std::int64_t workers_on(const std::string& gpu_id) const;

  LifecycleConfig config_;
  base::Entropy& entropy_;
  std::vector<gpu_inventory::Device> devices_;
  std::map<std::string, Worker> workers_;
  // Ids of workers that have left, oldest first, so that a late repetition of a start starts nothing.
  std::deque<std::string> gone_order_;
  std::set<std::string> gone_;
  std::map<std::pair<std::string, std::string>, std::string> failed_last_;  // (model_ref, device mask) -> category
  Counters counters_;
  base::LogLimiter refused_starts_{10, 10'000}, refused_callbacks_{10, 10'000};  // whoever asks decides how often
  std::uint64_t probes_ = 0;
  bool shutting_down_ = false;
};

}  // namespace llorch::pool_managerd::worker_lifecycle
