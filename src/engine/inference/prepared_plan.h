#pragma once
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/contract/backend.h"
#include "engine/contract/plan.h"
#include "engine/inference/memory/weight_store.h"

namespace llorch::engine::inference {

// The backend can run every instruction at these limits.
// Errors: UNSUPPORTED_OPCODE, BATCH_UNSUPPORTED, WEIGHT_DTYPE_UNSUPPORTED is left to prepare().
base::Result<> check_supported(const contract::CompiledPlan& plan, const contract::Backend& backend,
                               const contract::StepLimits& limits);

struct PrepareInput {
  const contract::CompiledPlan& plan;
  const contract::PhysicalMapping& mapping;
  std::span<std::byte* const> buffers;  // by physical index
  const memory::WeightStore& weights;
  std::span<const contract::StateBlockHandle> states;  // parallel to the plan's descriptors
  contract::Backend& backend;
  contract::StepLimits limits;
};

// A plan with everything looked up. Points into the plan, the buffers, the weights and the states: they outlive it.
class PreparedPlan {
 public:
  // Errors: those of check_supported and of the backend's prepare functions, naming the instruction.
  static base::Result<PreparedPlan> make(const PrepareInput& input);
  PreparedPlan() = default;
  PreparedPlan(PreparedPlan&&) = default;
  PreparedPlan& operator=(PreparedPlan&&) = default;

  std::span<const contract::PreparedInsn> instructions() const { return instructions_; }
  // Where an instruction's first output lies.
  std::byte* output_of(std::size_t instruction) const { return instructions_[instruction].output<std::byte>(0); }

 private:
  base::Result<> add(const PrepareInput& input, const contract::Instruction& insn);

  // Reserved to their final sizes before anything points into them.
  std::vector<contract::PreparedInsn> instructions_;
  std::vector<contract::TensorHandle> handles_;
  std::vector<contract::TensorViewDesc> views_;
};

}  // namespace llorch::engine::inference
