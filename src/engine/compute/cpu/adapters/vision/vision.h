#pragma once
// What turns patches into rows of the vision state, and those into rows of a batch. Semantics: engine/contract/adapter.h.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters::vision {

struct PatchEmbedAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct SpatialMergeAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct DeepstackExtractAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct ScatterAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters::vision
