#include "pool_managerd/control_api/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

#include "wire/json.h"

namespace llorch::pool_managerd::control_api {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

class Families {
 public:
  explicit Families(std::string pool_id) : pool_id_(std::move(pool_id)) {}

  void begin(const char* name, const char* help, MetricType type) { families_.push_back({name, help, type, {}}); }
  void add(double value, Labels labels = {}) {
    labels.emplace_back("component", "pool-managerd");
    labels.emplace_back("pool_id", pool_id_);
    ClientMetric metric;
    for (auto& [name, text] : labels) {
      ClientMetric::Label label;
      label.name = std::move(name);
      label.value = std::move(text);
      metric.label.push_back(std::move(label));
    }
    metric.gauge.value = metric.counter.value = value;
    families_.back().metric.push_back(std::move(metric));
  }
  // One counter per outcome, those that never happened included, so that rates start at zero.
  void counts(const char* name, const char* help, const char* label, std::initializer_list<const char*> all,
              const std::map<std::string, std::int64_t>& seen) {
    begin(name, help, MetricType::Counter);
    for (const char* outcome : all) {
      const auto it = seen.find(outcome);
      add(it == seen.end() ? 0 : static_cast<double>(it->second), {{label, outcome}});
    }
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::string pool_id_;
  std::vector<MetricFamily> families_;
};

}  // namespace

std::string metrics_text(const MetricsInput& input) {
  using wire::WorkerStatus;
  Families out(input.state.pool_id);
  out.begin("pool_mgr_gpus_total", "Devices that the pool manager found on its host.", MetricType::Gauge);
  out.add(static_cast<double>(input.state.gpus.size()));
  out.begin("pool_mgr_gpu_vram_total_bytes", "Memory that a device has.", MetricType::Gauge);
  for (const auto& gpu : input.state.gpus) out.add(static_cast<double>(gpu.vram_total_bytes), {{"gpu_id", gpu.gpu_id}});
  out.begin("pool_mgr_gpu_vram_allocated_bytes", "Memory of a device that the pool manager accounts to workers.",
            MetricType::Gauge);
  for (const auto& gpu : input.state.gpus) {
    out.add(static_cast<double>(gpu.vram_allocated_bytes), {{"gpu_id", gpu.gpu_id}});
  }
  const auto per_gpu = [&](const char* name, const char* help, auto value_of) {
    out.begin(name, help, MetricType::Gauge);
    for (const auto& gpu : input.state.gpus) {
      if (const auto value = value_of(gpu)) out.add(static_cast<double>(*value), {{"gpu_id", gpu.gpu_id}});
    }
  };
  per_gpu("pool_mgr_gpu_utilization_ratio", "Part of the time in which a device computed.",
          [](const wire::GpuInfo& gpu) -> std::optional<double> {
            if (!gpu.utilization_percent) return std::nullopt;
            return static_cast<double>(*gpu.utilization_percent) / 100;
          });
  per_gpu("pool_mgr_gpu_temperature_celsius", "Temperature of a device.",
          [](const wire::GpuInfo& gpu) { return gpu.temperature_celsius; });
  per_gpu("pool_mgr_gpu_power_milliwatts", "Power that a device draws.",
          [](const wire::GpuInfo& gpu) { return gpu.power_milliwatts; });
  per_gpu("pool_mgr_gpu_healthy", "1 while a device takes workers.",
          [](const wire::GpuInfo& gpu) { return std::optional<int>(gpu.healthy ? 1 : 0); });
  per_gpu("pool_mgr_gpu_foreign_bytes", "Memory of a device that processes hold which are no workers of the pool.",
          [](const wire::GpuInfo& gpu) { return std::optional(gpu.foreign_bytes); });
  out.begin("pool_mgr_gpu_ecc_errors",
            "Memory errors of a device since its driver began, by whether it corrected them.", MetricType::Gauge);
  for (const auto& gpu : input.state.gpus) {
    const auto add = [&](const char* kind, const std::optional<std::int64_t>& count) {
      if (count) out.add(static_cast<double>(*count), {{"gpu_id", gpu.gpu_id}, {"kind", kind}});
    };
    add("corrected", gpu.ecc_corrected_errors);
    add("uncorrected", gpu.ecc_uncorrected_errors);
  }
  out.begin("pool_mgr_gpu_throttled", "1 while a device's clocks are held down, by reason.", MetricType::Gauge);
  for (const auto& gpu : input.state.gpus) {
    for (const std::string& reason : gpu.throttle_reasons) out.add(1, {{"gpu_id", gpu.gpu_id}, {"reason", reason}});
  }
  out.begin("pool_mgr_driver_resets_total", "Times a device was lost, needed a reset or had memory errors, by kind.",
            MetricType::Counter);
  for (const auto& [key, count] : input.workers.device_faults) {
    out.add(static_cast<double>(count), {{"gpu_id", key.first}, {"kind", key.second}});
  }
  out.begin("pool_mgr_staged_bytes", "Host memory that holds models whose workers are to start soon.",
            MetricType::Gauge);
  double staged_bytes = 0;
  for (const auto& model : input.state.staged_models) staged_bytes += static_cast<double>(model.bytes);
  out.add(staged_bytes);
  out.begin("pool_mgr_workers_total", "Workers that the pool manager has, by status.", MetricType::Gauge);
  for (const WorkerStatus status : {WorkerStatus::kStarting, WorkerStatus::kReady, WorkerStatus::kBusy,
                                    WorkerStatus::kDraining, WorkerStatus::kFailed}) {
    double count = 0;
    for (const auto& worker : input.state.workers) count += worker.status == status;
    out.add(count, {{"status", std::string(wire::enum_name(status))}});
  }
  out.counts("pool_mgr_worker_starts_total", "Worker starts that orchestratord asked for, by outcome.", "outcome",
             {"success", "refused", "failed"}, input.workers.starts_by_outcome);
  out.counts("pool_mgr_worker_stops_total", "Workers that left, by reason.", "reason", {"evict", "drain", "crash"},
             input.workers.stops_by_reason);
  out.begin("pool_mgr_worker_failures_total", "Workers that left although nobody asked them to.", MetricType::Counter);
  for (const auto& [key, count] : input.workers.failures) {
    out.add(static_cast<double>(count), {{"category", key.first}, {"gpu_id", key.second}});
  }
  out.counts("pool_mgr_worker_restarts_total",
             "Starts of a worker that had failed on its device before, by how it failed.", "reason",
             {"crash", "oom", "timeout", "hang"}, input.workers.restarts_by_reason);
  out.counts("pool_mgr_registration_attempts_total",
             "Registrations that the pool manager sent to orchestratord, by outcome.", "outcome",
             {"success", "failure"}, input.registration.registrations_by_outcome);
  out.counts("pool_mgr_heartbeats_sent_total", "Heartbeats that the pool manager sent to orchestratord, by outcome.",
             "outcome", {"success", "failure"}, input.registration.heartbeats_by_outcome);
  out.counts("pool_mgr_model_downloads_total", "Models that the pool manager pulled, by outcome.", "outcome",
             {"success", "failure"}, {{"success", input.pulls.succeeded}, {"failure", input.pulls.failed}});
  out.begin("pool_mgr_connection_status", "1 while orchestratord has the pool registered.", MetricType::Gauge);
  out.add(input.connected ? 1 : 0);
  out.begin("pool_mgr_log_lines_dropped_total",
            "Log lines that the pool manager dropped because nobody read them in time.", MetricType::Counter);
  out.add(static_cast<double>(input.log_lines_dropped));
  return out.text();
}

}  // namespace llorch::pool_managerd::control_api
