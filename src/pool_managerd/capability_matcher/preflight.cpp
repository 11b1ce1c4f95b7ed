#include "pool_managerd/capability_matcher/preflight.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/assert.h"

namespace llorch::pool_managerd::capability_matcher {

using base::Error;
using base::ErrorCode;

namespace {

// What one device would have to give, all its ranks together.
struct Demand {
  const Candidate* candidate = nullptr;
  model_catalog::MemoryNeed need;

  std::int64_t available_bytes() const { return gpu_inventory::available_bytes(*candidate->device, candidate->use); }
  bool is_short() const { return need.bytes() > available_bytes(); }
};

std::vector<Demand> demands_of(const model_catalog::ModelPlan& model, std::span<const Candidate> by_rank) {
  ASSERT(!by_rank.empty() && by_rank.size() == model.memory.size(), "{} devices, {} needs", by_rank.size(),
         model.memory.size());
  std::vector<Demand> demands;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    ASSERT(by_rank[rank].device != nullptr);
    auto it = std::ranges::find(demands, by_rank[rank].device, [](const Demand& d) { return d.candidate->device; });
    if (it == demands.end()) it = demands.insert(demands.end(), {&by_rank[rank], {}});
    it->need.weights_bytes += model.memory[rank].weights_bytes;
    it->need.kv_bytes += model.memory[rank].kv_bytes;
    it->need.working_bytes += model.memory[rank].working_bytes;
  }
  return demands;
}

base::Result<> check_device(const Candidate& candidate, const PreflightLimits& limits) {
  const auto& device = *candidate.device;
  if (!device.healthy) {
    return base::fail(Error{
        ErrorCode::kGpuUnavailable,
        fmt::format("device {} is in error: {}; check the driver and the hardware", device.gpu_id, device.fault),
        {}}.with("gpu_id", device.gpu_id));
  }
  if (candidate.workers_count < limits.workers_per_gpu) return {};
  return base::fail(Error{ErrorCode::kConflict,
                          fmt::format("device {} already has {} worker(s), the limit is {}; stop one first or raise "
                                      "orchestratord.limits.workers_per_gpu",
                                      device.gpu_id, candidate.workers_count, limits.workers_per_gpu),
                          {}}
                        .with("gpu_id", device.gpu_id)
                        .with("reason", std::string("WORKERS_PER_GPU"))
                        .with("workers_count", candidate.workers_count)
                        .with("workers_per_gpu", limits.workers_per_gpu));
}

// "6000 bytes (weights 5000, kv 800 for 1 slot(s) of 64 tokens, working memory 200) of device 1, which has 4000 available"
std::string in_numbers(const Demand& demand, const model_catalog::WorkerShape& shape) {
  return fmt::format(
      "{} bytes (weights {}, kv {} for {} slot(s) of {} tokens, working memory {}) of device {}, which has {} "
      "available "
      "after {} of headroom",
      demand.need.bytes(), demand.need.weights_bytes, demand.need.kv_bytes, shape.slots, shape.context_tokens,
      demand.need.working_bytes, demand.candidate->device->gpu_id, demand.available_bytes(),
      demand.candidate->device->headroom_bytes);
}

}  // namespace

base::Result<> preflight(const model_catalog::ModelPlan& model, std::span<const Candidate> by_rank,
                         const PreflightLimits& limits) {
  const std::vector<Demand> demands = demands_of(model, by_rank);
  for (const Demand& demand : demands) TRY(check_device(*demand.candidate, limits));
  const auto first_short = std::ranges::find_if(demands, &Demand::is_short);
  if (first_short == demands.end()) return {};
  std::string numbers;
  for (const Demand& demand : demands) {
    numbers += fmt::format("{}{}{}", numbers.empty() ? "" : "; ", in_numbers(demand, model.shape),
                           demands.size() > 1 && demand.is_short() ? ": too little" : "");
  }
  return base::fail(Error{
      ErrorCode::kInsufficientVram,
      fmt::format("the model needs {}; use a shorter context, fewer slots or a smaller quantisation, or stop "
                  "another worker",
                  numbers),
      {}}.with("required_bytes", first_short->need.bytes())
                        .with("available_bytes", first_short->available_bytes())
                        .with("gpu_id", first_short->candidate->device->gpu_id)
                        .with("weights_bytes", first_short->need.weights_bytes)
                        .with("kv_bytes", first_short->need.kv_bytes)
                        .with("working_bytes", first_short->need.working_bytes)
                        .with("headroom_bytes", first_short->candidate->device->headroom_bytes));
}

}  // namespace llorch::pool_managerd::capability_matcher
