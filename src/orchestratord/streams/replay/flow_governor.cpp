#include "orchestratord/streams/replay/flow_governor.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/fair_share.h"

namespace llorch::orchestratord::streams {

FlowGovernor::Change FlowGovernor::update(std::span<const std::int64_t> held) {
  const bool oldest_waits = !paused_.empty() && (running_.empty() || paused_.begin()->first < running_.begin()->first);
  if (oldest_waits) return {.pause = {}, .resume = take(paused_, paused_.begin(), running_)};

  const std::int64_t total = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  const bool is_hard = total > bytes_hard();
  const std::int64_t share = is_hard ? -1 : base::fair_share(held, bytes_max_);
  const std::vector<std::uint64_t> oldest = oldest_by_tenant(held.size());
  auto chosen = running_.end();
  for (auto job = running_.begin(); job != running_.end(); ++job) {
    if (job == running_.begin() || held[job->second] <= share) continue;  // the first is the oldest of all
    if (!is_hard && job->first == oldest[job->second]) continue;
    if (chosen == running_.end() || held[job->second] >= held[chosen->second]) chosen = job;
  }
  if (chosen != running_.end()) return {.pause = take(running_, chosen, paused_), .resume = {}};

  if (total > bytes_hard() - bytes_hard() / 8) return {};
  const std::int64_t low = base::fair_share(held, bytes_low());
  const auto next = std::ranges::find_if(
      paused_, [&](const auto& job) { return held[job.second] <= low || job.first == oldest[job.second]; });
  if (next == paused_.end()) return {};
  return {.pause = {}, .resume = take(paused_, next, running_)};
}

std::vector<std::uint64_t> FlowGovernor::oldest_by_tenant(std::size_t tenants) const {
  std::vector<std::uint64_t> oldest(tenants, std::numeric_limits<std::uint64_t>::max());
  for (const Jobs* jobs : {&running_, &paused_}) {
    for (const auto& [order, tenant] : *jobs) oldest[tenant] = std::min(oldest[tenant], order);
  }
  return oldest;
}

std::uint64_t FlowGovernor::take(Jobs& from, Jobs::iterator job, Jobs& to) {
  return to.insert(from.extract(job)).position->first;
}

}  // namespace llorch::orchestratord::streams
