#pragma once
// When a waiting job will start, from what recent runs took. An estimate for people; no decision hangs on it except the
// refusal of a deadline that is certainly too short.
#include <cstdint>
#include <optional>

namespace llorch::orchestratord::core::placement {

// Exponentially weighted mean with weight 1/8 for the newest value: follows a change of workload within ten runs or so.
class Average {
 public:
  void add(std::int64_t value);
  std::optional<std::int64_t> get() const {
    return known_ ? std::optional(static_cast<std::int64_t>(mean_)) : std::nullopt;
  }

 private:
  double mean_ = 0;
  bool known_ = false;
};

struct EstimateInput {
  std::int64_t ahead = 0;        // jobs of the same model that go first
  std::int64_t slots_free = 0;   // over the model's Ready workers
  std::int64_t slots_total = 0;  // 0: none is ready
  std::int64_t slots_of_new_worker = 1;
  std::optional<std::int64_t> run_ms;    // mean run
  std::optional<std::int64_t> start_ms;  // mean start of a worker, less what a start in flight already took
};

// With a ready worker:  max(0, ahead - slots_free + 1) * run_ms / slots_total
// without:              start_ms + max(0, ahead - slots_of_new_worker + 1) * run_ms / slots_of_new_worker
// Absent if it needs a mean nobody has measured yet.
std::optional<std::int64_t> predicted_start_ms(const EstimateInput& input);

}  // namespace llorch::orchestratord::core::placement
