#include "orchestratord/streams/replay/flow_governor.h"

namespace llorch::orchestratord::streams {

FlowGovernor::Change FlowGovernor::update(std::int64_t bytes_total) {
  if (bytes_total > bytes_max_ && !running_.empty()) {
    const std::uint64_t newest = *running_.rbegin();
    const bool is_oldest = running_.size() == 1 && (paused_.empty() || newest < *paused_.begin());
    if (is_oldest) return {};
    running_.erase(newest);
    paused_.insert(newest);
    return {.pause = newest, .resume = {}};
  }
  // Resuming only below 7/8 keeps a stream at the limit from flapping. The oldest of all goes on whatever there is.
  const bool oldest_waits = !paused_.empty() && (running_.empty() || *paused_.begin() < *running_.begin());
  if (oldest_waits || (!paused_.empty() && bytes_total <= bytes_max_ - bytes_max_ / 8)) {
    const std::uint64_t oldest = *paused_.begin();
    paused_.erase(oldest);
    running_.insert(oldest);
    return {.pause = {}, .resume = oldest};
  }
  return {};
}

}  // namespace llorch::orchestratord::streams
