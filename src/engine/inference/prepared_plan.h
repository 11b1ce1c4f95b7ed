#pragma once
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/inference/memory/weight_store.h"
#include "engine/plan/backend.h"
#include "engine/plan/plan.h"

namespace llorch::engine::inference {

// The backend can run every instruction at these limits.
// Errors: UNSUPPORTED_OPCODE, BATCH_UNSUPPORTED, WEIGHT_DTYPE_UNSUPPORTED is left to prepare().
base::Result<> check_supported(const plan::CompiledPlan& plan, const plan::Backend& backend,
                               const plan::StepLimits& limits);

// Whether the backend takes every instruction with its parameters and weights at these limits, before any weight is on the device.
// REQUIRES: check_supported() took the plan. Errors: those of the backend's prepare functions.
base::Result<> check_instructions(const plan::CompiledPlan& plan, std::span<const models::BoundTensor> tensors,
                                  const plan::StepLimits& limits, plan::Backend& backend);

struct PrepareInput {
  const plan::CompiledPlan& plan;
  const plan::PhysicalMapping& mapping;
  std::span<std::byte* const> buffers;  // by physical index
  const memory::WeightStore& weights;
  std::span<const plan::StateBlockHandle> states;  // parallel to the plan's descriptors
  plan::Backend& backend;
  plan::StepLimits limits;
};

// A plan with everything looked up. Points into the plan, the buffers, the weights and the states: they outlive it.
class PreparedPlan {
 public:
  // Errors: those of check_supported and of the backend's prepare functions, naming the instruction.
  static base::Result<PreparedPlan> make(const PrepareInput& input);
  PreparedPlan() = default;
  PreparedPlan(PreparedPlan&&) = default;
  PreparedPlan& operator=(PreparedPlan&&) = default;

  std::span<const plan::PreparedInsn> instructions() const { return instructions_; }
  // Where an instruction's first output lies.
  std::byte* output_of(std::size_t instruction) const { return instructions_[instruction].output<std::byte>(0); }

 private:
  base::Result<> add(const PrepareInput& input, const plan::Instruction& insn);

  // Reserved to their final sizes before anything points into them.
  std::vector<plan::PreparedInsn> instructions_;
  std::vector<plan::TensorHandle> handles_;
  std::vector<plan::TensorViewDesc> views_;
};

}  // namespace llorch::engine::inference
