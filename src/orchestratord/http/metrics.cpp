#include "orchestratord/http/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "base/error_code.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::orchestratord::http {
namespace {

using core::Metric;
using prometheus::Labels;

const std::string kEngine{wire::kOwnEngine};
// The family without a prefix knows one pool and one replica: jobs are counted before they have a worker.
const std::string kPool = "default";
const std::string kReplica = "r0";

const prometheus::Histogram::BucketBoundaries kFirstTokenMs = {50,  100,  150,  200,  300, 500,
                                                               750, 1000, 1500, 2000, 3000};
const prometheus::Histogram::BucketBoundaries kDecodeMs = {250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000};
const prometheus::Histogram::BucketBoundaries kQueueWaitMs = {1, 5, 10, 50, 100, 500, 1000, 5000, 10000, 60000, 300000};
const prometheus::Histogram::BucketBoundaries kSchedulingMs = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10};

std::string text(std::string_view view) { return std::string(view); }
std::string priority_name(wire::Priority p) { return text(wire::enum_name(p)); }

// How many values one label of one family may have. Every value after them counts as "other", so that neither clients
// nor pools nor errors can make this process remember without end.
std::size_t budget_of(std::string_view label) {
  constexpr std::pair<std::string_view, std::size_t> kBudgets[] = {
      {"engine_version", 64}, {"pool_id", 256}, {"replica_id", 1024}, {"worker_id", 1024}, {"device", 64},
      {"model_id", 1024},     {"state", 8},     {"result", 4},        {"reason", 16},      {"code", 128},
      {"policy", 4},          {"priority", 8},  {"outcome", 4}};
  const auto it =
      std::find_if(std::begin(kBudgets), std::end(kBudgets), [&](const auto& b) { return b.first == label; });
  return it == std::end(kBudgets) ? 16 : it->second;
}
const std::string kOther = "other";

// The label `reason` of a refusal: the code, but for a full queue, which the family without a prefix names differently.
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

  // The family without a prefix: a family has exactly these labels, since dashboards select by them.
  Counters& tasks_enqueued = counter("tasks_enqueued_total", "Jobs that orchestratord accepted.", replica);
  Counters& tasks_started = counter("tasks_started_total", "Attempts that orchestratord sent to a worker.", replica);
  Counters& tasks_canceled =
      counter("tasks_canceled_total", "Jobs that a caller or a vanished client cancelled.", replica);
  Counters& tasks_rejected =
      counter("tasks_rejected_total", "Submissions that orchestratord refused, by reason.", engine);
  Gauges& queue_depth_v1 = gauge("queue_depth", "Jobs that wait for a worker.", versioned);
  Histograms& first_token = histogram("latency_first_token_ms",
                                      "Time from a job's admission until its worker sends the first token.", versioned);
  Histograms& decode = histogram("latency_decode_ms", "Time a worker decodes for a job.", versioned);
  Counters& tokens_in = counter("tokens_in_total", "Prompt tokens of the jobs that orchestratord accepted.", replica);
  Counters& tokens_out = counter("tokens_out_total", "Tokens that workers sampled for completed jobs.", replica);
  Gauges& kv_usage =
      gauge("kv_cache_usage_ratio", "Cache pages that running jobs hold over all cache pages of a worker.");
  Gauges& vram_used = gauge("vram_used_bytes", "Device memory that a worker holds.");
  Gauges& gpu_utilization =
      gauge("gpu_utilization", "Percentage of the time in which a worker's device computed, whoever for.");
  Gauges& model_state =
      gauge("model_state", "1 for the state of a model that an operator named: whether jobs may name it.");
  Counters& verifications =
      counter("catalog_verifications_total", "Times orchestratord compared a model's checksum, by result.", engine);
  Counters& backpressure =
      counter("admission_backpressure_events_total", "Times a full queue refused or dropped a job.", engine);
  Counters& placement = counter("placement_decisions_total", "Decisions that placement took about a waiting job.");
  Gauges& candidates =
      gauge("placement_candidates_considered", "Places and workers that placement looked at in its last decision.");

  // The family with the prefix orchd_, always with the label `component`.
  Gauges& queue_depth = gauge("orchd_queue_depth", "Jobs that wait for a worker.", ours);
  Counters& enqueued =
      counter("orchd_tasks_enqueued_total", "Submissions that orchestratord answered, by outcome.", ours);
  Counters& dispatched = counter("orchd_tasks_dispatched_total", "Attempts that workers ended, by outcome.", ours);
  Histograms& scheduling =
      histogram("orchd_scheduling_latency_ms", "Time the scheduler takes for one placement decision.", ours);
  Gauges& connections = gauge("orchd_worker_connections_active", "Jobs that a worker runs now.", ours);
  Counters& errors = counter("orchd_errors_total", "Errors that orchestratord told clients, by code.", ours);
  Counters& finished =
      counter("orchd_tasks_finished_total", "Jobs that reached their terminal event, by status.", ours);
  Counters& unreadable =
      counter("orchd_jobs_unreadable_total",
              "Jobs that orchestratord ended at its start because it could not read them back.", ours);
  Counters& timeouts =
      counter("orchd_timeouts_by_stage_total", "Jobs that ran out of time, by the stage they were in.", ours);
  Counters& preloads =
      counter("orchd_preloads_total", "Attempts of orchestratord to load a model of models.preload, by outcome.", ours);
  Counters& retries = counter("orchd_retries_total", "Attempts that orchestratord repeats, by cause.", ours);
  Counters& worker_starts =
      counter("orchd_worker_starts_total", "Worker starts that orchestratord ordered, by outcome.", ours);
  Counters& worker_stops =
      counter("orchd_worker_stops_total", "Worker stops that orchestratord ordered, by reason.", ours);
  Counters& drains = counter("drain_events_total", "Drains, reloads and purges that an operator asked of a pool.");
  Gauges& pool_ready = gauge("pool_ready", "1 while the pool takes jobs.");
  Gauges& active_leases = gauge("active_leases", "Jobs that the workers of a pool run now.");
  Counters& heartbeats =
      counter("orchd_heartbeats_received_total", "States that pools reported to orchestratord.", ours);
  Counters& optimizer_runs =
      counter("orchd_queue_optimizer_runs_total", "Times the queue optimizer reviewed a long queue, by outcome.", ours);
  Counters& optimizer_suggestions =
      counter("orchd_queue_optimizer_suggestions_total", "Suggestions that the queue optimizer made, by kind.", ours);
  Counters& optimizer_improvements =
      counter("orchd_queue_optimizer_improvements_total",
              "Suggestions of the queue optimizer that orchestratord carried out, by kind.", ours);
  Histograms& queue_wait = histogram("orchd_queue_wait_time_ms",
                                     "Time a job waits in the queue before orchestratord sends it to a worker.", ours);
  Gauges& pools = gauge("orchd_pools", "Pools that orchestratord knows, by status.", ours);
  Gauges& workers = gauge("orchd_workers", "Workers that orchestratord knows.", ours);
  Gauges& jobs = gauge("orchd_jobs_live", "Jobs that have not reached their terminal event.", ours);
  Gauges& streams = gauge("orchd_active_streams", "Streams that orchestratord holds in memory.", ours);
  Gauges& stream_clients = gauge("orchd_stream_clients", "Clients that read streams now.", ours);
  Gauges& stream_bytes = gauge("orchd_stream_buffer_bytes", "Memory that all streams hold.", ours);
  Gauges& relays_paused =
      gauge("orchd_relays_paused", "Workers that orchestratord slows down because stream memory is full.", ours);
  Counters& log_dropped = counter("orchd_log_lines_dropped_total",
                                  "Log lines that orchestratord dropped because nobody read them in time.", ours);

  Counters& traces =
      counter("orchd_traces_total",
              "Jobs whose spans orchestratord told the collector of traces, or dropped, by outcome.", ours);

  // The series with these labels, each within its budget.
  template <class Family, class... Args>
  auto& at(Family& family, Labels labels, const Args&... args) {
    {
      const std::lock_guard lock(labels_mutex);
      for (auto& [name, value] : labels) {
        auto& known = values[{&family, name}];
        if (!known.contains(value) && known.size() >= budget_of(name)) value = kOther;
        known.insert(value);
      }
    }
    return family.Add(labels, args...);
  }
  std::mutex labels_mutex;
  std::map<std::pair<const void*, std::string>, std::set<std::string>> values;

  // Gauges of things that come and go: what the last scrape did not set has no series.
  class Present {
   public:
    explicit Present(Gauges& family) : family_(family) {}
    void set(const Labels& labels, double value) {
      prometheus::Gauge& gauge = family_.Add(labels);
      gauge.Set(value);
      now_.insert(&gauge);
    }
    void finish() {
      for (prometheus::Gauge* old : shown_) {
        if (!now_.contains(old)) family_.Remove(old);
      }
      shown_ = std::exchange(now_, {});
    }

   private:
    Gauges& family_;
    std::set<prometheus::Gauge*> shown_, now_;
  };
  std::mutex mutex;  // of render()
  Present connections_now{connections}, kv_usage_now{kv_usage}, vram_used_now{vram_used},
      gpu_utilization_now{gpu_utilization}, model_state_now{model_state}, pool_ready_now{pool_ready},
      active_leases_now{active_leases};

  void show_workers(const std::vector<core::Gauges::WorkerConnections>& workers);
  void show_pools(const std::vector<core::Gauges::PoolReady>& pools);
  void show_models(const std::vector<wire::CatalogModel>& models);
};

// By worker up to the budget, the rest in one sum.
void Metrics::Families::show_workers(const std::vector<core::Gauges::WorkerConnections>& all) {
  core::Gauges::WorkerConnections rest{.worker_id = base::WorkerId(kOther), .pool_id = base::PoolId(kOther)};
  rest.engine_version = rest.gpu_id = kOther;
  std::set<std::string> pool_ids, versions, devices;
  const auto within = [](std::set<std::string>& known, const std::string& value, std::string_view label) {
    if (known.contains(value) || known.size() < budget_of(label)) return *known.insert(value).first;
    return kOther;
  };
  const auto show = [&](const core::Gauges::WorkerConnections& w) {
    connections_now.set({{"worker_id", w.worker_id.value}}, static_cast<double>(w.active));
    const Labels labels{{"engine", kEngine},
                        {"engine_version", within(versions, w.engine_version, "engine_version")},
                        {"pool_id", within(pool_ids, w.pool_id.value, "pool_id")},
                        {"replica_id", w.worker_id.value}};
    if (w.kv_pages_total > 0) {
      kv_usage_now.set(labels, static_cast<double>(w.kv_pages_used) / static_cast<double>(w.kv_pages_total));
    }
    Labels on_device = labels;
    on_device["device"] = within(devices, w.gpu_id, "device");
    vram_used_now.set(on_device, static_cast<double>(w.vram_bytes));
    for (const auto& [gpu_id, percent] : w.utilization_percent) {
      on_device["device"] = within(devices, gpu_id, "device");
      gpu_utilization_now.set(on_device, static_cast<double>(percent));
    }
  };
  const std::size_t shown = std::min(all.size(), budget_of("worker_id"));
  for (std::size_t i = 0; i < shown; ++i) show(all[i]);
  for (std::size_t i = shown; i < all.size(); ++i) {
    rest.active += all[i].active;
    rest.vram_bytes += all[i].vram_bytes;
    rest.kv_pages_total += all[i].kv_pages_total;
    rest.kv_pages_used += all[i].kv_pages_used;
  }
  if (shown < all.size()) show(rest);
  connections_now.finish();
  kv_usage_now.finish();
  vram_used_now.finish();
  gpu_utilization_now.finish();
}

// Without those past the budget: a sum of names says nothing.
void Metrics::Families::show_models(const std::vector<wire::CatalogModel>& all) {
  const std::size_t shown = std::min(all.size(), budget_of("model_id"));
  for (std::size_t i = 0; i < shown; ++i) {
    if (all[i].model_ref.empty()) continue;  // it is on its way
    model_state_now.set({{"model_id", all[i].model_id}, {"state", text(wire::enum_name(all[i].lifecycle_state))}}, 1);
  }
  model_state_now.finish();
}

void Metrics::Families::show_pools(const std::vector<core::Gauges::PoolReady>& all) {
  const std::size_t shown = std::min(all.size(), budget_of("pool_id"));
  bool rest_ready = false;
  std::int64_t rest_leases = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < shown) {
      pool_ready_now.set({{"pool_id", all[i].pool_id.value}}, all[i].ready ? 1 : 0);
      active_leases_now.set({{"pool_id", all[i].pool_id.value}}, static_cast<double>(all[i].leases));
      continue;
    }
    rest_ready |= all[i].ready;
    rest_leases += all[i].leases;
  }
  if (shown < all.size()) {
    pool_ready_now.set({{"pool_id", kOther}}, rest_ready ? 1 : 0);
    active_leases_now.set({{"pool_id", kOther}}, static_cast<double>(rest_leases));
  }
  pool_ready_now.finish();
  active_leases_now.finish();
}

Metrics::Metrics(Options options) : families_(std::make_unique<Families>(std::move(options))) {
  Families& f = *families_;
  // Present from the start, so that a rate has a zero to begin with.
  for (const char* priority : {"interactive", "batch"}) {
    f.tasks_enqueued.Add({{"priority", priority}});
    f.tasks_started.Add({{"priority", priority}});
  }
  for (const char* outcome : {"accepted", "rejected"}) f.enqueued.Add({{"outcome", outcome}});
  f.verifications.Add({{"result", "pass"}, {"reason", "none"}});
  for (const char* status : {"completed", "failed", "cancelled"}) f.finished.Add({{"status", status}});
  f.tokens_in.Add({});
  f.tokens_out.Add({});
}
Metrics::~Metrics() = default;

void Metrics::count(const core::Count& c) {
  Families& f = *families_;
  const auto value = static_cast<double>(c.value);
  const std::string priority = priority_name(c.priority);
  switch (c.metric) {
    case Metric::kEnqueued:
      f.at(f.enqueued, {{"outcome", c.label}}).Increment(value);
      if (c.label == "accepted") f.at(f.tasks_enqueued, {{"priority", priority}}).Increment(value);
      break;
    case Metric::kRejected:
      f.at(f.tasks_rejected, {{"reason", rejection_reason(c.label)}}).Increment(value);
      if (c.label == "QUEUE_FULL") f.at(f.backpressure, {{"policy", "reject"}}).Increment(value);
      break;
    case Metric::kQueueDropped: f.at(f.backpressure, {{"policy", c.label}}).Increment(value); break;
    case Metric::kDispatched: f.at(f.tasks_started, {{"priority", priority}}).Increment(value); break;
    case Metric::kDispatchEnded: f.at(f.dispatched, {{"outcome", c.label}}).Increment(value); break;
    case Metric::kFinished: f.at(f.finished, {{"status", c.label}}).Increment(value); break;
    case Metric::kCancelled: f.at(f.tasks_canceled, {{"reason", c.label}}).Increment(value); break;
    case Metric::kTimeouts: f.at(f.timeouts, {{"stage", c.label}}).Increment(value); break;
    case Metric::kRetries: f.at(f.retries, {{"code", c.label}}).Increment(value); break;
    case Metric::kWorkerStarts: f.at(f.worker_starts, {{"outcome", c.label}}).Increment(value); break;
    case Metric::kWorkerStops: f.at(f.worker_stops, {{"reason", c.label}}).Increment(value); break;
    case Metric::kDrains: f.at(f.drains, {{"pool_id", c.pool_id}, {"reason", c.label}}).Increment(value); break;
    case Metric::kHeartbeatsReceived: f.at(f.heartbeats, {{"pool_id", c.label}}).Increment(value); break;
    case Metric::kOptimizerRuns: f.at(f.optimizer_runs, {{"outcome", c.label}}).Increment(value); break;
    case Metric::kOptimizerSuggestions: f.at(f.optimizer_suggestions, {{"kind", c.label}}).Increment(value); break;
    case Metric::kOptimizerImprovements: f.at(f.optimizer_improvements, {{"kind", c.label}}).Increment(value); break;
    case Metric::kTokensIn: f.tokens_in.Add({}).Increment(value); break;
    case Metric::kTokensOut: f.tokens_out.Add({}).Increment(value); break;
    case Metric::kQueueWaitMs: f.at(f.queue_wait, {{"priority", priority}}, kQueueWaitMs).Observe(value); break;
    case Metric::kFirstTokenMs: f.at(f.first_token, {{"priority", priority}}, kFirstTokenMs).Observe(value); break;
    case Metric::kDecodeMs: f.at(f.decode, {{"priority", priority}}, kDecodeMs).Observe(value); break;
  }
}

void Metrics::count(const core::CountPlacement& c) {
  const auto text_of = [](bool value) { return value ? "true" : "false"; };
  families_->placement
      .Add({{"outcome", c.assigned ? "assigned" : "no_capacity"},
            {"pinned", text_of(c.pinned)},
            {"fallback", text_of(c.fallback)}})
      .Increment();
  families_->candidates.Add({}).Set(static_cast<double>(c.candidates_considered));
}

void Metrics::error(std::string_view code) {
  families_->at(families_->errors, {{"code", text(code)}, {"class", error_class(code)}}).Increment();
}

void Metrics::verification(std::string_view failure) {
  const bool passed = failure.empty();
  families_
      ->at(families_->verifications,
           {{"result", passed ? "pass" : "fail"}, {"reason", passed ? "none" : text(failure)}})
      .Increment();
}

void Metrics::preload(bool succeeded) {
  families_->at(families_->preloads, {{"outcome", succeeded ? "success" : "failure"}}).Increment();
}

void Metrics::scheduling_latency_ms(double ms) {
  families_->scheduling.Add({{"algorithm", families_->options.algorithm}}, kSchedulingMs).Observe(ms);
}

void Metrics::unreadable(std::int64_t jobs) { families_->unreadable.Add({}).Increment(static_cast<double>(jobs)); }

void Metrics::traced(std::string_view outcome, std::int64_t jobs) {
  families_->traces.Add({{"outcome", text(outcome)}}).Increment(static_cast<double>(jobs));
}

std::string Metrics::render(const core::Gauges& gauges, const StreamGauges& streams,
                            const std::vector<wire::CatalogModel>& models, std::int64_t log_lines_dropped) {
  Families& f = *families_;
  const std::lock_guard lock(f.mutex);
  for (const auto priority : {wire::Priority::kInteractive, wire::Priority::kBatch}) {
    const auto depth = static_cast<double>(gauges.queue_depth[static_cast<std::size_t>(priority)]);
    f.queue_depth.Add({{"priority", priority_name(priority)}}).Set(depth);
    f.queue_depth_v1.Add({{"priority", priority_name(priority)}}).Set(depth);
  }
  f.show_workers(gauges.worker_connections);
  f.show_pools(gauges.pools);
  f.show_models(models);
  f.pools.Add({{"status", "healthy"}}).Set(static_cast<double>(gauges.pools_healthy));
  f.pools.Add({{"status", "unhealthy"}}).Set(static_cast<double>(gauges.pools_unhealthy));
  f.workers.Add({}).Set(static_cast<double>(gauges.workers_total));
  f.jobs.Add({}).Set(static_cast<double>(gauges.jobs_live));
  f.streams.Add({}).Set(static_cast<double>(streams.streams));
  f.stream_clients.Add({}).Set(static_cast<double>(streams.clients));
  f.stream_bytes.Add({}).Set(static_cast<double>(streams.bytes_held));
  f.relays_paused.Add({}).Set(static_cast<double>(streams.relays_paused));
  auto& log_dropped = f.log_dropped.Add({});
  log_dropped.Increment(static_cast<double>(log_lines_dropped) - log_dropped.Value());
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, f.registry.Collect());
  return out.str();
}

}  // namespace llorch::orchestratord::http
