#pragma once
// Token mixers other than plain attention. Semantics: engine/plan/adapter.h.
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters::mixers {

struct MambaAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct GatedDeltaAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct MlaAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct ShortconvAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct LightningIndexAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters::mixers
