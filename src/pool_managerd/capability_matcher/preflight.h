#pragma once
// Whether a worker may be started on a device: a pure decision with numbers (SYS-6.2.3). Which device to try is
// orchestratord's decision.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool_managerd/gpu_inventory/device.h"
#include "pool_managerd/model_catalog/model_plan.h"

namespace llorch::pool_managerd::capability_matcher {

struct Candidate {
  const gpu_inventory::Device* device = nullptr;  // REQUIRES not null
  gpu_inventory::DeviceUse use;
  std::int64_t workers_count = 0;
};

struct PreflightLimits {
  std::int64_t workers_per_gpu = 1;
};

// GPU_UNAVAILABLE (unhealthy), CONFLICT (workers_per_gpu reached), INSUFFICIENT_VRAM with required_bytes,
// available_bytes, gpu_id and the parts of the prediction. The headroom is already taken off what is available.
base::Result<> preflight(const model_catalog::ModelPlan& model, const Candidate& candidate,
                         const PreflightLimits& limits);

}  // namespace llorch::pool_managerd::capability_matcher
