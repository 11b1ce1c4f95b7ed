#pragma once
// Hyper-connections, and attention to rows and to entries that windows of rows became. Semantics: engine/plan/adapter.h.
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters::compressed {

namespace hyper_connections {
struct HyperCollapseAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct HyperAddAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace hyper_connections
namespace compressor {
struct CompressorAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace compressor
namespace attention {
struct CompressedAttentionAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace attention

}  // namespace llorch::engine::compute::cpu::adapters::compressed
