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
  model_catalog::MemoryNeed parts;
  std::int64_t bytes = 0;  // of all: ranks need not have their most at the same time, but may

  std::int64_t available_bytes() const { return gpu_inventory::available_bytes(*candidate->device, candidate->use); }
  bool is_short() const { return bytes > available_bytes(); }
};

std::vector<Demand> demands_of(const model_catalog::ModelPlan& model, std::span<const Candidate> by_rank) {
  ASSERT(!by_rank.empty() && by_rank.size() == model.memory.size(), "{} devices, {} needs", by_rank.size(),
         model.memory.size());
  std::vector<Demand> demands;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    ASSERT(by_rank[rank].device != nullptr);
    auto it = std::ranges::find(demands, by_rank[rank].device, [](const Demand& d) { return d.candidate->device; });
    if (it == demands.end()) it = demands.insert(demands.end(), {&by_rank[rank], {}, 0});
    const model_catalog::MemoryNeed& need = model.memory[rank];
    it->bytes += need.bytes();
    it->parts.weights_bytes += need.weights_bytes;
    it->parts.kv_bytes += need.kv_bytes;
    it->parts.working_bytes += need.working_bytes;
    it->parts.staging_bytes += need.staging_bytes;
    it->parts.widened_bytes += need.widened_bytes;
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

// "6000 bytes (weights 5000, kv 800 for 1 slot(s) of 64 tokens, working memory 200; while they are loaded weights and 64 of
// staging) of device 1, which has 4000 available after 100 of headroom"
std::string in_numbers(const Demand& demand, const model_catalog::WorkerShape& shape) {
  const auto& parts = demand.parts;
  const std::string widened =
      parts.widened_bytes == 0 ? "" : fmt::format(", {} of them FP8 kept as BF16", parts.widened_bytes);
  const std::string staging =
      parts.staging_bytes == 0 ? ""
                               : fmt::format("; while they are loaded weights and {} of staging", parts.staging_bytes);
  return fmt::format(
      "{} bytes (weights {}{}, kv {} for {} slot(s) of {} tokens, working memory {}{}) of device {}, which has {} "
      "available "
      "after {} of headroom",
      demand.bytes, parts.weights_bytes, widened, parts.kv_bytes, shape.slots, shape.context_tokens,
      parts.working_bytes, staging, demand.candidate->device->gpu_id, demand.available_bytes(),
      demand.candidate->device->headroom_bytes);
}

std::vector<std::int64_t> grants(const model_catalog::ModelPlan& model, std::span<const Candidate> by_rank,
                                 std::span<const Demand> demands) {
  std::vector<std::int64_t> spare;
  for (const Demand& demand : demands) spare.push_back(demand.available_bytes() - demand.bytes);
  std::vector<std::int64_t> bytes;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto it =
        std::ranges::find(demands, by_rank[rank].device, [](const Demand& d) { return d.candidate->device; });
    std::int64_t& left = spare[static_cast<std::size_t>(it - demands.begin())];
    const model_catalog::MemoryNeed& need = model.memory[rank];
    const std::int64_t more = std::min(left, need.wanted_bytes() - need.bytes());
    left -= more;
    bytes.push_back(need.bytes() + more);
  }
  return bytes;
}

}  // namespace

base::Result<std::vector<std::int64_t>> preflight(const model_catalog::ModelPlan& model,
                                                  std::span<const Candidate> by_rank, const PreflightLimits& limits) {
  const std::vector<Demand> demands = demands_of(model, by_rank);
  for (const Demand& demand : demands) TRY(check_device(*demand.candidate, limits));
  const auto first_short = std::ranges::find_if(demands, &Demand::is_short);
  if (first_short == demands.end()) return grants(model, by_rank, demands);
  std::string numbers;
  for (const Demand& demand : demands) {
    numbers += fmt::format("{}{}{}", numbers.empty() ? "" : "; ", in_numbers(demand, model.shape),
                           demands.size() > 1 && demand.is_short() ? ": too little" : "");
  }
  return base::fail(Error{
      ErrorCode::kInsufficientVram,
      fmt::format("the model needs {}; use a shorter context, fewer slots or a smaller quantization, or stop "
                  "another worker",
                  numbers),
      {}}.with("required_bytes", first_short->bytes)
                        .with("available_bytes", first_short->available_bytes())
                        .with("gpu_id", first_short->candidate->device->gpu_id)
                        .with("weights_bytes", first_short->parts.weights_bytes)
                        .with("kv_bytes", first_short->parts.kv_bytes)
                        .with("working_bytes", first_short->parts.working_bytes)
                        .with("staging_bytes", first_short->parts.staging_bytes)
                        .with("headroom_bytes", first_short->candidate->device->headroom_bytes));
}

}  // namespace llorch::pool_managerd::capability_matcher
