#include "orchestratord/streams/replay/flow_governor.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/fair_share.h"

namespace llorch::orchestratord::streams {

FlowGovernor::Change FlowGovernor::update(std::span<const std::int64_t> held, std::int64_t now_ms) {
  const bool oldest_waits = !paused_.empty() && (running_.empty() || paused_.begin()->first < running_.begin()->first);
  if (oldest_waits) return {.pause = {}, .resume = take(paused_, paused_.begin(), running_)};

  const std::int64_t total = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  const bool is_hard = total > bytes_hard(), is_full = total > bytes_full();
  if (!is_hard) hard_since_ms_.reset();
  if (is_hard && !hard_since_ms_) hard_since_ms_ = now_ms;
  const std::int64_t share = is_full ? -1 : base::fair_share(held, bytes_max_);
  const std::vector<std::uint64_t> oldest = oldest_by_tenant(held.size());
  auto chosen = running_.end();
  for (auto job = running_.begin(); job != running_.end(); ++job) {
    const std::size_t tenant = job->second.tenant;
    if (job == running_.begin() || held[tenant] <= share) continue;  // the first is the oldest of all
    if (!is_hard && job->first == oldest[tenant]) continue;
    if (chosen == running_.end() || held[tenant] >= held[chosen->second.tenant]) chosen = job;
  }
  if (chosen != running_.end()) {
    chosen->second.paused_at_ms = now_ms;
    return {.pause = take(running_, chosen, paused_), .resume = {}};
  }

  if (is_hard && !ending_) {
    ending_ = to_end(held, now_ms);
    if (ending_) return {.pause = {}, .resume = {}, .end = ending_};
  }
  if (total > bytes_full() - bytes_full() / 8) return {};
  const bool is_calm = total <= bytes_hard() - bytes_hard() / 8;
  const std::int64_t low = base::fair_share(held, bytes_low());
  const auto next = std::ranges::find_if(paused_, [&](const auto& job) {
    const std::size_t tenant = job.second.tenant;
    return held[tenant] <= low || (is_calm && job.first == oldest[tenant]);
  });
  if (next == paused_.end()) return {};
  return {.pause = {}, .resume = take(paused_, next, running_)};
}

// The newest of the tenant that holds the most, of those that were paused for long past the hard limit: what it holds, nobody
// else has for as long as it likes.
std::optional<std::uint64_t> FlowGovernor::to_end(std::span<const std::int64_t> held, std::int64_t now_ms) const {
  const std::int64_t share = base::fair_share(held, bytes_max_);
  std::optional<std::uint64_t> newest;
  std::int64_t most = 0;
  for (const auto& [order, job] : paused_) {
    const std::int64_t bytes = held[job.tenant];
    const bool is_due = now_ms - std::max(job.paused_at_ms, *hard_since_ms_) >= patience_ms_;
    if (!is_due || bytes <= share || bytes < most) continue;
    newest = order;
    most = bytes;
  }
  return newest;
}

std::vector<std::uint64_t> FlowGovernor::oldest_by_tenant(std::size_t tenants) const {
  std::vector<std::uint64_t> oldest(tenants, std::numeric_limits<std::uint64_t>::max());
  for (const Jobs* jobs : {&running_, &paused_}) {
    for (const auto& [order, job] : *jobs) oldest[job.tenant] = std::min(oldest[job.tenant], order);
  }
  return oldest;
}

std::uint64_t FlowGovernor::take(Jobs& from, Jobs::iterator job, Jobs& to) {
  return to.insert(from.extract(job)).position->first;
}

}  // namespace llorch::orchestratord::streams
