#pragma once
// One pair per opcode: run, workspace. Semantics: engine/contract/adapter.h. A run enqueues kernels and nothing
// else: no wait, no allocation, no read of device memory.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cuda::adapters {

struct NoWorkspace {
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept {
    return 0;
  }
};

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
struct MoeAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct MlaAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct MambaAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct ShortconvAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};
struct EmbeddingAdapter : NoWorkspace {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
};
struct ResidualAddAdapter : NoWorkspace {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
};
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
struct ScatterAdapter : NoWorkspace {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
};
struct LmHeadAdapter {
  static contract::Status run(contract::ExecutionContext&, const contract::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const contract::ParamBlock&, const contract::StepLimits&,
                                       const contract::Backend&) noexcept;
};

}  // namespace llorch::engine::compute::cuda::adapters
