#pragma once
// The mixture of experts of engine/plan/adapter.h.
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters::moe {

struct MoeAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters::moe
