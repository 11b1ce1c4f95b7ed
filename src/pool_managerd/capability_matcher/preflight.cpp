#include "pool_managerd/capability_matcher/preflight.h"

#include <fmt/core.h>

#include "base/assert.h"

namespace llorch::pool_managerd::capability_matcher {

using base::Error;
using base::ErrorCode;

base::Result<> preflight(const model_catalog::ModelPlan& model, const Candidate& candidate,
                         const PreflightLimits& limits) {
  ASSERT(candidate.device != nullptr);
  const auto& device = *candidate.device;
  if (!device.healthy) {
    return base::fail(Error{
        ErrorCode::kGpuUnavailable,
        fmt::format("device {} is in error: {}; check the driver and the hardware", device.gpu_id, device.fault),
        {}}.with("gpu_id", device.gpu_id));
  }
  if (candidate.workers_count >= limits.workers_per_gpu) {
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
  const std::int64_t required = model.required_bytes();
  const std::int64_t available = gpu_inventory::available_bytes(device, candidate.use);
  if (required > available) {
    return base::fail(Error{
        ErrorCode::kInsufficientVram,
        fmt::format("the model needs {} bytes (weights {}, kv {} for {} slot(s) of {} tokens, working memory {}) and "
                    "device {} has {} available after {} of headroom; use a shorter context, fewer slots or a "
                    "smaller quantisation, or stop another worker",
                    required, model.weights_bytes, model.kv_bytes, model.shape.slots, model.shape.context_tokens,
                    model.working_bytes, device.gpu_id, available, device.headroom_bytes),
        {}}.with("required_bytes", required)
                          .with("available_bytes", available)
                          .with("gpu_id", device.gpu_id)
                          .with("weights_bytes", model.weights_bytes)
                          .with("kv_bytes", model.kv_bytes)
                          .with("working_bytes", model.working_bytes)
                          .with("headroom_bytes", device.headroom_bytes));
  }
  return {};
}

}  // namespace llorch::pool_managerd::capability_matcher
