#include "orchestratord/telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "base/error_code.h"
#include "contract/json.h"

namespace llorch::orchestratord::telemetry {
namespace {

using brain::Metric;
using prometheus::Labels;

const std::string kEngine = "llama-orch";
// One pool name and one replica name in the founding family: jobs are counted before they have a worker.
const std::string kPool = "default";
const std::string kReplica = "r0";

const prometheus::Histogram::BucketBoundaries kFirstTokenMs = {50,  100,  150,  200,  300, 500,
                                                               750, 1000, 1500, 2000, 3000};
const prometheus::Histogram::BucketBoundaries kDecodeMs = {250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000};
const prometheus::Histogram::BucketBoundaries kQueueWaitMs = {1, 5, 10, 50, 100, 500, 1000, 5000, 10000, 60000, 300000};
const prometheus::Histogram::BucketBoundaries kSchedulingMs = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10};

std::string text(std::string_view view) { return std::string(view); }
std::string priority_name(contract::Priority p) { return text(contract::enum_name(p)); }

// What the founding documents call a refusal for a full queue.
std::string rejection_reason(const std::string& code) { return code == "QUEUE_FULL" ? "ADMISSION_REJECT" : code; }

std::string error_class(std::string_view code) {
  const auto known = base::error_code_from_name(code);
  if (!known) return "permanent";
  const base::ErrorInfo& row = base::info(*known);
  if (row.retriable) return "retry_later";
  return row.http_status < 500 ? "reject" : "permanent";
}

}  // namespace

struct Metrics::Families {
  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  explicit Families(Options o) : options(std::move(o)) {}

  Counters& counter(const std::string& name, const std::string& help, const Labels& constant = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(constant).Register(registry);
  }
  Gauges& gauge(const std::string& name, const std::string& help, const Labels& constant = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(constant).Register(registry);
  }
  Histograms& histogram(const std::string& name, const std::string& help, const Labels& constant = {}) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(constant).Register(registry);
  }

  const Options options;
  prometheus::Registry registry;
  const Labels ours{{"component", "orchestratord"}};
  const Labels versioned{{"engine", kEngine}, {"engine_version", options.engine_version}, {"pool_id", kPool}};
  const Labels replica{
      {"engine", kEngine}, {"engine_version", options.engine_version}, {"pool_id", kPool}, {"replica_id", kReplica}};
  const Labels engine{{"engine", kEngine}};

  // The founding family (§15.1): labels are exactly these.
  Counters& tasks_enqueued = counter("tasks_enqueued_total", "Jobs accepted", replica);
  Counters& tasks_started = counter("tasks_started_total", "Jobs sent to a worker", replica);
  Counters& tasks_canceled = counter("tasks_canceled_total", "Jobs cancelled", replica);
  Counters& tasks_rejected = counter("tasks_rejected_total", "Jobs refused at admission", engine);
  Gauges& queue_depth_v1 = gauge("queue_depth", "Jobs waiting", versioned);
  Histograms& first_token = histogram("latency_first_token_ms", "From admission to the first token", versioned);
  Histograms& decode = histogram("latency_decode_ms", "Decoding time of a job", versioned);
  Counters& tokens_in = counter("tokens_in_total", "Prompt tokens of accepted jobs", replica);
  Counters& tokens_out = counter("tokens_out_total", "Tokens of completed jobs", replica);
  Counters& backpressure = counter("admission_backpressure_events_total", "Full-queue events", engine);
  Counters& placement = counter("placement_decisions_total", "Placement decisions");
  Gauges& candidates = gauge("placement_candidates_considered", "Candidates of the last placement decision");

  // Ours (§15.2, §15.3).
  Gauges& queue_depth = gauge("orchd_queue_depth", "Jobs waiting", ours);
  Counters& enqueued = counter("orchd_tasks_enqueued_total", "Submissions by outcome", ours);
  Counters& dispatched = counter("orchd_tasks_dispatched_total", "Attempts by outcome and worker", ours);
  Histograms& scheduling = histogram("orchd_scheduling_latency_ms", "Time of one placement decision", ours);
  Gauges& connections = gauge("orchd_worker_connections_active", "Jobs running per worker", ours);
  Counters& errors = counter("orchd_errors_total", "Errors told to clients", ours);
  Counters& finished = counter("orchd_tasks_finished_total", "Jobs by terminal status", ours);
  Counters& timeouts = counter("orchd_timeouts_by_stage_total", "Jobs that ran out of time", ours);
  Counters& retries = counter("orchd_retries_total", "Attempts repeated, by cause", ours);
  Counters& worker_starts = counter("orchd_worker_starts_total", "Worker starts by outcome", ours);
  Counters& worker_stops = counter("orchd_worker_stops_total", "Worker stops by reason", ours);
  Counters& drains = counter("drain_events_total", "Drains, reloads and purges of pools");
  Gauges& pool_ready = gauge("pool_ready", "1: the pool takes jobs");
  Gauges& active_leases = gauge("active_leases", "Jobs on the pool's workers");
  Counters& heartbeats = counter("orchd_heartbeats_received_total", "Pool states received", ours);
  Counters& optimizer_runs = counter("orchd_queue_optimizer_runs_total", "Reviews of a long queue", ours);
  Counters& optimizer_suggestions = counter("orchd_queue_optimizer_suggestions_total", "Suggestions by kind", ours);
  Counters& optimizer_improvements =
      counter("orchd_queue_optimizer_improvements_total", "Suggestions that were carried out", ours);
  Histograms& queue_wait = histogram("orchd_queue_wait_time_ms", "Time in the queue", ours);
  Gauges& pools = gauge("orchd_pools", "Pools by status", ours);
  Gauges& workers = gauge("orchd_workers", "Workers known", ours);
  Gauges& jobs = gauge("orchd_jobs_live", "Jobs that have not ended", ours);
  Gauges& streams = gauge("orchd_active_streams", "Streams held in memory", ours);
  Gauges& stream_clients = gauge("orchd_stream_clients", "Clients reading streams", ours);
  Gauges& stream_bytes = gauge("orchd_stream_buffer_bytes", "Memory of all streams", ours);
  Gauges& relays_paused = gauge("orchd_relays_paused", "Workers slowed down for want of stream memory", ours);

  // Guards what follows: the registry itself is thread-safe, attempts need their worker, render() drops old workers.
  std::mutex mutex;
  std::set<std::string> worker_ids, pool_ids;
};

Metrics::Metrics(Options options) : families_(std::make_unique<Families>(std::move(options))) {
  Families& f = *families_;
  // Present from the start, so that a rate has a zero to begin with.
  for (const char* priority : {"interactive", "batch"}) {
    f.tasks_enqueued.Add({{"priority", priority}});
    f.tasks_started.Add({{"priority", priority}});
  }
  for (const char* outcome : {"accepted", "rejected"}) f.enqueued.Add({{"outcome", outcome}});
  for (const char* status : {"completed", "failed", "cancelled"}) f.finished.Add({{"status", status}});
  f.tokens_in.Add({});
  f.tokens_out.Add({});
}
Metrics::~Metrics() = default;

void Metrics::count(const brain::Count& c) {
  Families& f = *families_;
  const auto value = static_cast<double>(c.value);
  const std::string priority = priority_name(c.priority);
  switch (c.metric) {
    case Metric::kEnqueued:
      f.enqueued.Add({{"outcome", c.label}}).Increment(value);
      if (c.label == "accepted") f.tasks_enqueued.Add({{"priority", priority}}).Increment(value);
      break;
    case Metric::kRejected:
      f.tasks_rejected.Add({{"reason", rejection_reason(c.label)}}).Increment(value);
      if (c.label == "QUEUE_FULL") f.backpressure.Add({{"policy", "reject"}}).Increment(value);
      break;
    case Metric::kQueueDropped: f.backpressure.Add({{"policy", c.label}}).Increment(value); break;
    case Metric::kDispatched: f.tasks_started.Add({{"priority", priority}}).Increment(value); break;
    case Metric::kDispatchEnded: f.dispatched.Add({{"outcome", c.label}}).Increment(value); break;
    case Metric::kFinished: f.finished.Add({{"status", c.label}}).Increment(value); break;
    case Metric::kCancelled: f.tasks_canceled.Add({{"reason", c.label}}).Increment(value); break;
    case Metric::kTimeouts: f.timeouts.Add({{"stage", c.label}}).Increment(value); break;
    case Metric::kRetries: f.retries.Add({{"code", c.label}}).Increment(value); break;
    case Metric::kWorkerStarts: f.worker_starts.Add({{"outcome", c.label}}).Increment(value); break;
    case Metric::kWorkerStops: f.worker_stops.Add({{"reason", c.label}}).Increment(value); break;
    case Metric::kDrains: f.drains.Add({{"pool_id", c.pool_id}, {"reason", c.label}}).Increment(value); break;
    case Metric::kHeartbeatsReceived: f.heartbeats.Add({{"pool_id", c.label}}).Increment(value); break;
    case Metric::kOptimizerRuns: f.optimizer_runs.Add({{"outcome", c.label}}).Increment(value); break;
    case Metric::kOptimizerSuggestions: f.optimizer_suggestions.Add({{"kind", c.label}}).Increment(value); break;
    case Metric::kOptimizerImprovements: f.optimizer_improvements.Add({{"kind", c.label}}).Increment(value); break;
    case Metric::kTokensIn: f.tokens_in.Add({}).Increment(value); break;
    case Metric::kTokensOut: f.tokens_out.Add({}).Increment(value); break;
    case Metric::kQueueWaitMs: f.queue_wait.Add({{"priority", priority}}, kQueueWaitMs).Observe(value); break;
    case Metric::kFirstTokenMs: f.first_token.Add({{"priority", priority}}, kFirstTokenMs).Observe(value); break;
    case Metric::kDecodeMs: f.decode.Add({{"priority", priority}}, kDecodeMs).Observe(value); break;
  }
}

void Metrics::count(const brain::CountPlacement& c) {
  const auto text_of = [](bool value) { return value ? "true" : "false"; };
  families_->placement
      .Add({{"outcome", c.assigned ? "assigned" : "no_capacity"},
            {"pinned", text_of(c.pinned)},
            {"fallback", text_of(c.fallback)}})
      .Increment();
  families_->candidates.Add({}).Set(static_cast<double>(c.candidates_considered));
}

void Metrics::error(std::string_view code) {
  families_->errors.Add({{"code", text(code)}, {"class", error_class(code)}}).Increment();
}

void Metrics::scheduling_latency_ms(double ms) {
  families_->scheduling.Add({{"algorithm", families_->options.algorithm}}, kSchedulingMs).Observe(ms);
}

std::string Metrics::render(const brain::Gauges& gauges, const StreamGauges& streams) {
  Families& f = *families_;
  const std::lock_guard lock(f.mutex);
  for (const auto priority : {contract::Priority::kInteractive, contract::Priority::kBatch}) {
    const auto depth = static_cast<double>(gauges.queue_depth[static_cast<std::size_t>(priority)]);
    f.queue_depth.Add({{"priority", priority_name(priority)}}).Set(depth);
    f.queue_depth_v1.Add({{"priority", priority_name(priority)}}).Set(depth);
  }
  std::set<std::string> present;
  for (const auto& worker : gauges.worker_connections) {
    present.insert(worker.worker_id.value);
    f.connections.Add({{"worker_id", worker.worker_id.value}}).Set(static_cast<double>(worker.active));
  }
  for (const std::string& old : f.worker_ids) {
    if (!present.contains(old)) f.connections.Remove(&f.connections.Add({{"worker_id", old}}));
  }
  f.worker_ids = std::move(present);
  std::set<std::string> pools_here;
  for (const auto& pool : gauges.pools) {
    pools_here.insert(pool.pool_id.value);
    f.pool_ready.Add({{"pool_id", pool.pool_id.value}}).Set(pool.ready ? 1 : 0);
    f.active_leases.Add({{"pool_id", pool.pool_id.value}}).Set(static_cast<double>(pool.leases));
  }
  for (const std::string& old : f.pool_ids) {
    if (pools_here.contains(old)) continue;
    f.pool_ready.Remove(&f.pool_ready.Add({{"pool_id", old}}));
    f.active_leases.Remove(&f.active_leases.Add({{"pool_id", old}}));
  }
  f.pool_ids = std::move(pools_here);
  f.pools.Add({{"status", "healthy"}}).Set(static_cast<double>(gauges.pools_healthy));
  f.pools.Add({{"status", "unhealthy"}}).Set(static_cast<double>(gauges.pools_unhealthy));
  f.workers.Add({}).Set(static_cast<double>(gauges.workers_total));
  f.jobs.Add({}).Set(static_cast<double>(gauges.jobs_live));
  f.streams.Add({}).Set(static_cast<double>(streams.streams));
  f.stream_clients.Add({}).Set(static_cast<double>(streams.clients));
  f.stream_bytes.Add({}).Set(static_cast<double>(streams.bytes_held));
  f.relays_paused.Add({}).Set(static_cast<double>(streams.relays_paused));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, f.registry.Collect());
  return out.str();
}

}  // namespace llorch::orchestratord::telemetry
