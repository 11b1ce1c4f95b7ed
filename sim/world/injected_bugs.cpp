// Bugs put in on purpose, at the seams around the core and the shell of one orchestratord.
#include <algorithm>

#include "sim/world/life.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"

namespace llorch::sim {

namespace core = orchestratord::core;
namespace store = orchestratord::store;

// Of what the store gives back after a start.
void Orchestrator::bug(store::RestoredState& state) const {
  const InjectedBug bug = world_.options.bug;
  for (auto& [pool, desired] : state.desired_states) {
    if (bug == InjectedBug::kDrainForgotten) desired.draining = false;
    if (bug == InjectedBug::kReloadForgotten) desired.reload.reset();
    if (bug == InjectedBug::kPurgeForgotten) desired.purged.clear();
  }
  if (bug == InjectedBug::kRefillQuotas) state.tenants.clear();
  if (bug == InjectedBug::kRefillSessions) {
    for (auto& session : state.sessions) session.use = {};
  }
  if (bug == InjectedBug::kForgetRunningJobs) {
    std::erase_if(state.jobs, [](const auto& job) { return job.job.progress.status == wire::JobStatus::kRunning; });
  }
  if (bug == InjectedBug::kRestoreNewestFirst) std::reverse(state.jobs.begin(), state.jobs.end());
  for (store::RestoredJob& job : state.jobs) {
    if (bug == InjectedBug::kTenantForgotten) job.job.tenant_id.clear();
    if (bug == InjectedBug::kVersionForgotten) job.job.progress.worker_version.reset();
  }
}

namespace {

void bug(InjectedBug bug, orchestratord::core::jobs::JobSpec& spec) {
  if (bug == InjectedBug::kPlacementIgnored) spec.placement = {};
  if (bug == InjectedBug::kTimesOutEarly && spec.timeout_ms)
    *spec.timeout_ms = std::max<std::int64_t>(1, *spec.timeout_ms / 2);
  if (bug == InjectedBug::kTimesOutLate && spec.timeout_ms) *spec.timeout_ms *= 3;
}

}  // namespace

// Of what the core hears.
void Orchestrator::bug(core::Event& event) {
  const InjectedBug bug = world_.options.bug;
  if (auto* submit = std::get_if<core::Submit>(&event)) sim::bug(bug, submit->job);
  if (bug == InjectedBug::kUnreachablePoolServes && std::holds_alternative<core::PoolUnreachable>(event)) {
    event = core::Tick{};
  }
  auto* restored = std::get_if<core::Restored>(&event);
  if (restored == nullptr) return;
  for (auto& job : restored->jobs) {
    sim::bug(bug, job.spec);
    if (bug == InjectedBug::kStreamsForgotten) life_->shell.context().hub->forget(job.spec.job_id);
  }
}

// Of what the core commands, what is not done.
bool Orchestrator::is_lost(const Command& command) {
  const auto* forget = std::get_if<core::ForgetPool>(&command);
  if (forget == nullptr || world_.options.bug != InjectedBug::kPoolNotForgotten) return false;
  world_.disk.desired.erase(forget->pool_id.value);
  post(core::Committed{{forget->commit}});
  return true;
}

// Of what the core commands, what a bug would make of it.
void Orchestrator::bug(std::vector<Command>& commands) {
  const InjectedBug bug = world_.options.bug;
  std::vector<Command> out;
  for (Command& command : commands) {
    const auto* execute = std::get_if<core::Execute>(&command);
    const auto* stop = std::get_if<core::StopWorker>(&command);
    const auto* start = std::get_if<core::StartWorker>(&command);
    if (stop != nullptr && bug == InjectedBug::kStopIsLost) continue;
    if (stop != nullptr) ++swaps_;
    if (execute != nullptr && bug == InjectedBug::kSwapLosesJobs && swaps_ > 0 && execute->execution.value % 2 == 0)
      continue;
    out.push_back(command);
    if (execute != nullptr && bug == InjectedBug::kDispatchTwice && execute->attempt >= 2) {
      core::Execute again = *execute;
      again.execution.value += 1'000'000;
      out.emplace_back(again);
    }
    const std::string endpoint = execute != nullptr ? "http://" + execute->pool_id.value : std::string();
    const auto stop_it = [&] { out.emplace_back(core::StopWorker{execute->pool_id, endpoint, execute->worker_id}); };
    if (execute != nullptr && bug == InjectedBug::kUnloadRacesRequest &&
        world_.options.core.eviction.worker_idle_ttl_ms > 0) {
      std::int64_t& used_ms = used_ms_[execute->worker_id.value];
      const std::int64_t idle_ms = world_.loop.now_ms() - std::exchange(used_ms, world_.loop.now_ms());
      if (idle_ms >= world_.options.core.eviction.worker_idle_ttl_ms * 9 / 10) stop_it();
    }
    const bool drains = std::any_of(world_.disk.desired.begin(), world_.disk.desired.end(),
                                    [](const auto& item) { return item.second.draining; });
    if (execute != nullptr && bug == InjectedBug::kDrainKillsJobs && drains) stop_it();
    if (start != nullptr) {
      last_start_ = *start;
      last_start_ms_ = world_.loop.now_ms();
    }
    // Somebody waits for memory while another one's model loads.
    const auto* admitted = std::get_if<core::AnswerSubmit>(&command);
    if (bug == InjectedBug::kEvictsLoading && admitted != nullptr && last_start_ &&
        world_.loop.now_ms() - last_start_ms_ < 1'000) {
      out.emplace_back(core::StopWorker{last_start_->pool_id, last_start_->endpoint,
                                        base::WorkerId(last_start_->request.worker_id)});
    }
  }
  commands = std::move(out);
}

}  // namespace llorch::sim
