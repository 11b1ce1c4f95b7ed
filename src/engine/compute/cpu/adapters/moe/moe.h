#pragma once
// The mixture of experts of engine/contract/adapter.h.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters::moe {

struct MoeAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters::moe
