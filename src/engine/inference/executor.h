#pragma once
#include <cstddef>
#include <span>

#include "engine/plan/adapter.h"
#include "engine/plan/collective.h"

namespace llorch::engine::inference {

// Looks on after every instruction. For tools: serving runs without one.
class InstructionObserver {
 public:
  virtual ~InstructionObserver() = default;
  // A status that is not ok ends the step with it.
  virtual plan::Status after(const plan::ExecutionContext& ctx, std::size_t instruction,
                             const plan::PreparedInsn& prepared) noexcept = 0;
};

// Where a plan's partial sums become sums; of a plan without any, nowhere.
struct SumsAt {
  plan::Collective* collective = nullptr;
  std::uint32_t rank = 0;
};

// Runs the instructions in order; stops at the first that fails. The only executor loop there is.
// REQUIRES: `plan` was prepared for the backend whose memory `ctx` points to.
plan::Status run(plan::ExecutionContext& ctx, std::span<const plan::PreparedInsn> plan,
                 InstructionObserver* observer = nullptr, const SumsAt& sums = {}) noexcept;

}  // namespace llorch::engine::inference
