#include "worker/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace llorch::worker {
namespace {

// What the devices were given to do, and what it took: one series per rank.
void add_devices(prometheus::Registry& registry, const prometheus::Labels& own,
                 const std::vector<engine::plan::StepMeasures>& devices) {
  using engine::plan::StepMeasures;
  const auto count = [&](const char* name, const char* help, auto value_of, const prometheus::Labels& more = {}) {
    auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(registry);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      prometheus::Labels labels = own;
      labels["rank"] = std::to_string(rank);
      labels.insert(more.begin(), more.end());
      family.Add(labels).Increment(static_cast<double>(value_of(devices[rank])));
    }
  };
  if (devices.empty()) return;
  count("worker_device_steps_total", "Steps that a device computed.", [](const StepMeasures& m) { return m.steps; });
  count("worker_device_rows_total", "Token rows that a device computed in its steps.",
        [](const StepMeasures& m) { return m.rows; });
  count("worker_kernel_launches_total",
        "Kernels that a device ran, in graphs or by themselves; over worker_device_steps_total per step, over "
        "worker_device_rows_total per token.",
        [](const StepMeasures& m) { return m.launches; });
  count("worker_device_steps_timed_total", "Steps whose time a device measured.",
        [](const StepMeasures& m) { return m.steps_timed; });
  count("worker_device_step_seconds_total", "Time that a device took for the steps it timed.",
        [](const StepMeasures& m) { return m.seconds; });
  const std::pair<const char*, std::uint64_t StepMeasures::*> events[] = {{"made", &StepMeasures::graphs_made},
                                                                          {"replayed", &StepMeasures::graphs_replayed},
                                                                          {"missed", &StepMeasures::graphs_missed},
                                                                          {"dropped", &StepMeasures::graphs_dropped},
                                                                          {"refused", &StepMeasures::graphs_refused}};
  for (const auto& [event, member] : events) {
    count("worker_graph_events_total", "CUDA graphs of steps, by what the worker did with them.",
          [member = member](const StepMeasures& m) { return m.*member; }, {{"event", event}});
  }
}

}  // namespace

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
  gauge("worker_vram_bytes", "Device memory that this worker holds.", static_cast<std::int64_t>(in.usage.memory_bytes));
  gauge("worker_slots", "Jobs that this worker can run at a time.", in.slots_total);
  gauge("worker_slots_free", "Slots that no job holds.", in.slots_free);
  counter("worker_uptime_seconds", "Seconds since the worker became ready.", in.uptime_seconds);
  counter("worker_tokens_in_total", "Prompt tokens that all jobs brought.", in.counts.tokens_in);
  counter("worker_tokens_generated_total", "Tokens that the worker sampled for all jobs.", in.counts.tokens_out);
  counter("worker_inference_ms_total", "Time that jobs spent in the worker, from acceptance to end.",
          in.counts.busy_ms);
  counter("worker_log_lines_dropped_total", "Log lines that the worker dropped because nobody read them in time.",
          in.log_lines_dropped);
  const auto& steps = in.usage.counts;
  gauge("worker_sequences_running", "Jobs that hold a slot of the engine.", in.usage.running);
  gauge("worker_sequences_waiting", "Jobs that wait for a slot or for cache pages.", in.usage.waiting);
  counter("worker_steps_total", "Steps that the engine computed.", static_cast<std::int64_t>(steps.steps));
  counter("worker_step_rows_total", "Token rows that the engine computed in all steps.",
          static_cast<std::int64_t>(steps.rows));
  counter("worker_step_sequences_total",
          "Jobs that took part in a step, summed over steps; over worker_steps_total, the mean batch.",
          static_cast<std::int64_t>(steps.sequence_steps));
  counter("worker_preemptions_total", "Times a job gave up its cache pages, to be computed again.",
          static_cast<std::int64_t>(steps.preemptions));
  counter("worker_prefix_hit_tokens_total", "Prompt tokens that the prefix cache held.",
          static_cast<std::int64_t>(steps.prefix_tokens_hit));
  counter("worker_prefix_miss_tokens_total", "Prompt tokens that the engine computed.",
          static_cast<std::int64_t>(steps.prefix_tokens_missed));
  counter("worker_speculation_proposed_tokens_total", "Tokens that the engine computed ahead of their draw.",
          static_cast<std::int64_t>(steps.proposals.proposed));
  counter("worker_speculation_accepted_tokens_total", "Tokens that the engine computed ahead and a job then drew.",
          static_cast<std::int64_t>(steps.proposals.accepted));
  add_devices(registry, own, in.devices);
  auto& pages = prometheus::BuildGauge()
                    .Name("worker_kv_pages")
                    .Help("Cache pages that the worker has, by state.")
                    .Register(registry);
  const std::pair<const char*, std::uint64_t> states[] = {
      {"used", in.usage.pages_used},
      {"cached", in.usage.pages_cached},
      {"free", in.usage.pages_total - in.usage.pages_used - in.usage.pages_cached}};
  for (const auto& [state, value] : states) {
    prometheus::Labels labels = own;
    labels["state"] = state;
    pages.Add(labels).Set(static_cast<double>(value));
  }
  prometheus::BuildGauge()
      .Name("kv_cache_usage_ratio")
      .Help("Cache pages that running jobs hold over all cache pages.")
      .Register(registry)
      .Add(own)
      .Set(in.usage.pages_total == 0
               ? 0.0
               : static_cast<double>(in.usage.pages_used) / static_cast<double>(in.usage.pages_total));
  auto& requests = prometheus::BuildCounter()
                       .Name("worker_requests_total")
                       .Help("Jobs that the worker ended, by outcome.")
                       .Register(registry);
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
