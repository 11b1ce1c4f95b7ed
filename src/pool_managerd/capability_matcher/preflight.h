#pragma once
// Whether a worker may be started on the devices of its mask: a pure decision with numbers (SYS-6.2.3, SYS-3.3.1). Which
// devices to try is orchestratord's decision.
#include <cstdint>
#include <span>
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

// Bytes that each rank may hold of its device: what it needs, then, from the first rank on, as much of what is still
// free as its staging wants. `by_rank`: the device of every rank; one device may have several. GPU_UNAVAILABLE
// (unhealthy), CONFLICT (workers_per_gpu reached), INSUFFICIENT_VRAM with required_bytes, available_bytes, gpu_id and
// the parts of the prediction of the first device that is short; the message has the numbers of every device. The
// headroom is already taken off what is available. REQUIRES: as many candidates as the plan has needs, at least one.
base::Result<std::vector<std::int64_t>> preflight(const model_catalog::ModelPlan& model,
                                                  std::span<const Candidate> by_rank, const PreflightLimits& limits);

}  // namespace llorch::pool_managerd::capability_matcher
