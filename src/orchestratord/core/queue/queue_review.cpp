// The queue optimizer's side of the core (SYS-6.1.4): when the queue is reviewed, and what is made of the advice.
#include <fmt/core.h>

#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using queue::DeviceView;
using queue::Kind;
using queue::Suggestion;

// While more jobs wait than the threshold, a review follows an interval after the last one; a short burst gets none.
void QueueReview::watch_queue() {
  const auto& c = config_.queue_optimizer;
  if (!c.enabled || watching_queue_ || env_.draining() || queue_.depth() <= c.threshold_jobs) return;
  watching_queue_ = true;
  timers_.arm(now_.mono_ms + c.interval_ms, {.kind = TimerKind::kReviewQueue});
}

void QueueReview::review_queue() {
  watching_queue_ = false;
  if (env_.draining() || queue_.depth() <= config_.queue_optimizer.threshold_jobs) return groups_.drop_advice();
  if (reviewing_queue_) return;
  reviewing_queue_ = true;
  emit(ReviewQueue{queue_snapshot(), config_.queue_optimizer.max_runtime_ms});
}

queue::Snapshot QueueReview::queue_snapshot() const {
  queue::Snapshot s{.groups = {},
                    .devices = {},
                    .pools_expected = s_.pools.pools_expected(),
                    .workers_per_device = config_.workers_per_gpu};
  for (const Priority priority : {Priority::kInteractive, Priority::kBatch}) {
    std::optional<Arrival> after;
    while (const auto head = queue_.next_head(priority, after)) {
      after = head->arrival;
      if (queue_.head_of(head->group)->second != head->arrival) continue;  // its interactive head came before
      const JobGroup& l = group(head->group);
      if (!groups_.may_run(l)) continue;  // no worker would help it
      const Model& m = model(l.model);
      if (l.facts.devices > 1) continue;  // what is weighed is one device against another
      s.groups.push_back({.group = head->group,
                          .first_job = jobs_.at(head->arrival).spec.job_id,
                          .model_digest = l.facts.digest,
                          .placement = l.placement,
                          .jobs = static_cast<std::int64_t>(queue_.count_of(head->group)),
                          .memory_bytes = l.facts.memory_bytes,
                          .slots_of_new_worker = config_.worker_slots,
                          .run_ms = m.run_ms.get(),
                          .start_ms = m.start_ms.get()});
    }
  }
  for (const auto& [pool_id, pool] : registry_.pools()) {
    for (const auto& [gpu_id, device] : pool.devices) s.devices.push_back(device_view(pool_id, device));
  }
  return s;
}

DeviceView QueueReview::device_view(const base::PoolId& pool_id, const pools::Device& device) const {
  DeviceView view{.pool_id = pool_id,
                  .gpu_id = device.info.gpu_id,
                  .usable = s_.desired.pool_open(pool_id) && device.info.healthy,
                  .free_bytes = device.free_bytes(),
                  .total_bytes = device.info.vram_total_bytes,
                  .workers = {}};
  for (const Worker* w : device.workers) {
    const Model* m = models_.find(w->info.model_digest);
    view.workers.push_back({.worker_id = w->id,
                            .model_digest = w->info.model_digest,
                            .serves = m && s_.replicas.serves(*w, m->facts),
                            .wanted = m && s_.replicas.first_waiting_for(*w, *m).has_value(),
                            .slots_total = w->info.slots_total,
                            .slots_in_use = w->slots_in_use,
                            .idle_ms = now_.mono_ms - w->last_used_ms,
                            .bytes = w->bytes_on(device.info.gpu_id)});
  }
  return view;
}

void QueueReview::on(QueueReviewed& e) {
  if (!reviewing_queue_) return;
  reviewing_queue_ = false;
  count(Metric::kOptimizerRuns, e.report.aborted ? "aborted" : "completed");
  groups_.drop_advice();
  for (const Suggestion& s : e.report.suggestions) {
    // The group may have ended meanwhile, and its number may be another one's.
    const Job* job = jobs_.find(s.first_job);
    if (!job || job->group != s.group || job->status != JobStatus::kQueued || !groups_.may_run(group(s.group)))
      continue;
    group(s.group).advice = s;
    if (s.kind == Kind::kAddWorker) groups_.allow_worker(s.group);
    count(Metric::kOptimizerSuggestions, queue::name(s.kind));
    log(base::LogLevel::kInfo, "optimizer.suggestion", job, "Sees how waiting jobs could be helped.",
        {{"kind", queue::name(s.kind)},
         {"jobs", s.jobs},
         {"pool_id", s.pool_id ? s.pool_id->value : ""},
         {"worker_id", s.worker_id ? s.worker_id->value : ""},
         {"gain_ms", s.gain_ms}});
  }
}

std::string QueueReview::advice_text(const Suggestion& advice) {
  switch (advice.kind) {
    case Kind::kStale:
      return "Nothing that is registered now can ever run it: add a device or pool that can, or cancel it.";
    case Kind::kRelaxPlacement:
      return fmt::format("A worker in {} is free, but the job's placement leaves it out.", advice.pool_id->value);
    case Kind::kAddWorker:
      return fmt::format("One more worker in {} would end the wait about {} ms sooner.", advice.pool_id->value,
                         advice.gain_ms);
  }
  return {};
}

}  // namespace llorch::orchestratord::core
