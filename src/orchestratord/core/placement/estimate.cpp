#include "orchestratord/core/placement/estimate.h"

#include <algorithm>

namespace llorch::orchestratord::core::placement {
namespace {

// Time until the job finds a slot among `slots`, `free` of them free now.
std::optional<std::int64_t> queueing_ms(const EstimateInput& input, std::int64_t slots, std::int64_t free) {
  const std::int64_t ends_needed = std::max<std::int64_t>(0, input.ahead - free + 1);
  if (ends_needed == 0) return 0;
  if (!input.run_ms) return std::nullopt;
  return ends_needed * *input.run_ms / std::max<std::int64_t>(1, slots);
}

}  // namespace

void Average::add(std::int64_t value) {
  const auto v = static_cast<double>(value);
  mean_ = known_ ? mean_ + (v - mean_) / 8 : v;
  known_ = true;
}

std::optional<std::int64_t> predicted_start_ms(const EstimateInput& input) {
  if (input.slots_total > 0) return queueing_ms(input, input.slots_total, input.slots_free);
  if (!input.start_ms) return std::nullopt;
  const auto queueing = queueing_ms(input, input.slots_of_new_worker, input.slots_of_new_worker);
  if (!queueing) return std::nullopt;
  return std::max<std::int64_t>(0, *input.start_ms) + *queueing;
}

}  // namespace llorch::orchestratord::core::placement
