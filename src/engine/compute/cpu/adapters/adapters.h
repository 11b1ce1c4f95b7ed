#pragma once
// One pair per opcode: run, workspace. Semantics: engine/contract/adapter.h.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

struct RmsNormAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct AttentionAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct SwigluAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct EmbeddingAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct ResidualAddAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct LmHeadAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters
