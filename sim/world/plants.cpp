// Bugs put in on purpose, at the seams around the brain and the shell of one orchestratord.
#include <algorithm>

#include "sim/world/life.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"

namespace llorch::sim {

namespace brain = orchestratord::brain;
namespace state_store = orchestratord::state_store;

// Of what the store gives back after a start.
void Orchestrator::plant(state_store::RestoredState& state) const {
  const Plant plant = world_.options.plant;
  for (auto& [pool, orders] : state.pool_orders) {
    if (plant == Plant::kDrainForgotten) orders.draining = false;
    if (plant == Plant::kReloadForgotten) orders.reload.reset();
    if (plant == Plant::kPurgeForgotten) orders.purged.clear();
  }
  if (plant == Plant::kRefillQuotas) state.tenants.clear();
  if (plant == Plant::kRefillSessions) {
    for (auto& session : state.sessions) session.use = {};
  }
  if (plant == Plant::kForgetRunningJobs) {
    std::erase_if(state.jobs, [](const auto& job) { return job.job.progress.status == contract::JobStatus::kRunning; });
  }
  if (plant == Plant::kRestoreNewestFirst) std::reverse(state.jobs.begin(), state.jobs.end());
  for (state_store::RestoredJob& job : state.jobs) {
    if (plant == Plant::kTenantForgotten) job.job.tenant_id.clear();
    if (plant == Plant::kVersionForgotten) job.job.progress.worker_version.reset();
  }
}

namespace {

void plant(Plant plant, orchestratord::jobs::JobSpec& spec) {
  if (plant == Plant::kPlacementIgnored) spec.placement = {};
  if (plant == Plant::kTimesOutEarly && spec.timeout_ms)
    *spec.timeout_ms = std::max<std::int64_t>(1, *spec.timeout_ms / 2);
  if (plant == Plant::kTimesOutLate && spec.timeout_ms) *spec.timeout_ms *= 3;
}

}  // namespace

// Of what the brain hears.
void Orchestrator::plant(brain::Event& event) {
  const Plant bug = world_.options.plant;
  if (auto* submit = std::get_if<brain::Submit>(&event)) sim::plant(bug, submit->job);
  auto* restored = std::get_if<brain::Restored>(&event);
  if (restored == nullptr) return;
  for (auto& job : restored->jobs) {
    sim::plant(bug, job.spec);
    if (bug == Plant::kStreamsForgotten) life_->shell.context().hub->forget(job.spec.job_id);
  }
}

// Of what the brain commands, what is not done.
bool Orchestrator::is_lost(const Command& command) {
  const auto* forget = std::get_if<brain::ForgetPool>(&command);
  if (forget == nullptr || world_.options.plant != Plant::kGoodbyeUnheard) return false;
  world_.disk.orders.erase(forget->pool_id.value);
  post(brain::Committed{{forget->commit}});
  return true;
}

// Of what the brain commands, what a bug would make of it.
void Orchestrator::plant(std::vector<Command>& commands) {
  const Plant plant = world_.options.plant;
  std::vector<Command> out;
  for (Command& command : commands) {
    const auto* execute = std::get_if<brain::Execute>(&command);
    const auto* stop = std::get_if<brain::StopWorker>(&command);
    const auto* start = std::get_if<brain::StartWorker>(&command);
    if (stop != nullptr && plant == Plant::kStopIsLost) continue;
    if (stop != nullptr) ++swaps_;
    if (execute != nullptr && plant == Plant::kSwapLosesJobs && swaps_ > 0 && execute->execution.value % 2 == 0)
      continue;
    out.push_back(command);
    if (execute != nullptr && plant == Plant::kDispatchTwice && execute->attempt >= 2) {
      brain::Execute again = *execute;
      again.execution.value += 1'000'000;
      out.emplace_back(again);
    }
    const std::string endpoint = execute != nullptr ? "http://" + execute->pool_id.value : std::string();
    const auto stop_it = [&] { out.emplace_back(brain::StopWorker{execute->pool_id, endpoint, execute->worker_id}); };
    if (execute != nullptr && plant == Plant::kUnloadRacesRequest &&
        world_.options.brain.eviction.worker_idle_ttl_ms > 0) {
      std::int64_t& used_ms = used_ms_[execute->worker_id.value];
      const std::int64_t idle_ms = world_.loop.now_ms() - std::exchange(used_ms, world_.loop.now_ms());
      if (idle_ms >= world_.options.brain.eviction.worker_idle_ttl_ms * 9 / 10) stop_it();
    }
    const bool drains = std::any_of(world_.disk.orders.begin(), world_.disk.orders.end(),
                                    [](const auto& item) { return item.second.draining; });
    if (execute != nullptr && plant == Plant::kDrainKillsJobs && drains) stop_it();
    if (start != nullptr) {
      last_start_ = *start;
      last_start_ms_ = world_.loop.now_ms();
    }
    // Somebody waits for memory while another one's model loads.
    const auto* admitted = std::get_if<brain::AnswerSubmit>(&command);
    if (plant == Plant::kEvictsLoading && admitted != nullptr && last_start_ &&
        world_.loop.now_ms() - last_start_ms_ < 1'000) {
      out.emplace_back(brain::StopWorker{last_start_->pool_id, last_start_->endpoint,
                                         base::WorkerId(last_start_->request.worker_id)});
    }
  }
  commands = std::move(out);
}

}  // namespace llorch::sim
