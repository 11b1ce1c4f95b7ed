#pragma once
// Token mixers other than plain attention. Semantics: engine/contract/adapter.h.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters::mixers {

struct MambaAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct MlaAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct ShortconvAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters::mixers
