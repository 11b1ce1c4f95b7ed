#include "worker/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace llorch::worker {

std::string metrics_text(const MetricsInput& in) {
  prometheus::Registry registry;
  const prometheus::Labels own = {
      {"component", "worker-orcd"}, {"worker_id", in.worker_id}, {"quant_kind", in.quant_kind}};
  const auto gauge = [&](const char* name, const char* help, std::int64_t value) {
    prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(own).Set(static_cast<double>(value));
  };
  const auto counter = [&](const char* name, const char* help, std::int64_t value) {
    prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(own).Increment(static_cast<double>(value));
  };
  gauge("worker_vram_bytes", "Device memory held by this worker.", in.memory_bytes);
  gauge("worker_slots", "Jobs this worker can run at a time.", in.slots_total);
  gauge("worker_slots_free", "Slots without a job.", in.slots_free);
  counter("worker_uptime_seconds", "Seconds since the worker became ready.", in.uptime_seconds);
  counter("worker_tokens_in_total", "Prompt tokens of all jobs.", in.counts.tokens_in);
  counter("worker_tokens_generated_total", "Sampled tokens of all jobs.", in.counts.tokens_out);
  counter("worker_inference_ms_total", "Time spent in jobs, from acceptance to end.", in.counts.busy_ms);
  auto& requests = prometheus::BuildCounter().Name("worker_requests_total").Help("Jobs by outcome.").Register(registry);
  const std::pair<const char*, std::int64_t> outcomes[] = {{"success", in.counts.succeeded},
                                                           {"error", in.counts.failed},
                                                           {"cancelled", in.counts.cancelled},
                                                           {"timeout", in.counts.timed_out}};
  for (const auto& [outcome, value] : outcomes) {
    prometheus::Labels labels = own;
    labels["outcome"] = outcome;
    requests.Add(labels).Increment(static_cast<double>(value));
  }
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace llorch::worker
