#include "orchestratord/streams/replay/flow_governor.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace llorch::orchestratord::streams {

std::int64_t fair_share(std::span<const std::int64_t> held, std::int64_t bytes_max) {
  std::vector<std::int64_t> rising(held.begin(), held.end());
  std::ranges::sort(rising);
  std::int64_t left = bytes_max;
  for (std::size_t i = 0; i < rising.size(); ++i) {
    const std::int64_t share = left / static_cast<std::int64_t>(rising.size() - i);
    if (rising[i] > share) return share;
    left -= rising[i];
  }
  return std::numeric_limits<std::int64_t>::max();
}

FlowGovernor::Change FlowGovernor::update(std::span<const std::int64_t> held) {
  const bool oldest_waits = !paused_.empty() && (running_.empty() || paused_.begin()->first < running_.begin()->first);
  if (oldest_waits) return {.pause = {}, .resume = take(paused_, paused_.begin(), running_)};

  const std::int64_t total = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  const std::int64_t share = total > bytes_hard() ? -1 : fair_share(held, bytes_max_);
  auto chosen = running_.end();
  for (auto job = running_.begin(); job != running_.end(); ++job) {
    if (job == running_.begin() || held[job->second] <= share) continue;  // the first is the oldest of all
    if (chosen == running_.end() || held[job->second] >= held[chosen->second]) chosen = job;
  }
  if (chosen != running_.end()) return {.pause = take(running_, chosen, paused_), .resume = {}};

  if (total > bytes_hard() - bytes_hard() / 8) return {};
  const std::int64_t low = fair_share(held, bytes_low());
  const auto next = std::ranges::find_if(paused_, [&](const auto& job) { return held[job.second] <= low; });
  if (next == paused_.end()) return {};
  return {.pause = {}, .resume = take(paused_, next, running_)};
}

std::uint64_t FlowGovernor::take(Jobs& from, Jobs::iterator job, Jobs& to) {
  return to.insert(from.extract(job)).position->first;
}

}  // namespace llorch::orchestratord::streams
