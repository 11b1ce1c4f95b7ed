#pragma once
// What turns patches into rows of the vision state, and those into rows of a batch. Semantics: engine/plan/adapter.h.
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters::vision {

namespace patch_embed {
struct PatchEmbedAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace patch_embed
namespace merger {
struct SpatialMergeAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct DeepstackExtractAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace merger
struct ScatterAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cpu::adapters::vision
