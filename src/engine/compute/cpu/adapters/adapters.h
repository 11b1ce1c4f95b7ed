#pragma once
// One pair per opcode: run, workspace. Semantics: engine/plan/adapter.h.
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

struct RmsNormAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
namespace attention {
struct AttentionAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace attention
struct SwigluAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct EmbeddingAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct ResidualAddAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct LmHeadAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct PositionEmbeddingAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct DenseAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
struct PoolAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};

namespace predictor_input {
struct PredictorInputAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace predictor_input
namespace layer_input {
struct LayerInputAdapter {
  static plan::Status run(plan::ExecutionContext&, const plan::PreparedInsn&) noexcept;
  static std::uint64_t workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&, const plan::Backend&) noexcept;
};
}  // namespace layer_input

}  // namespace llorch::engine::compute::cpu::adapters
