#include "engine/inference/executor.h"

namespace llorch::engine::inference {

using plan::Status;

namespace {

Status take_sum(const plan::ExecutionContext& ctx, const plan::PreparedInsn& prepared, const SumsAt& sums) noexcept {
  ASSERT(sums.collective != nullptr, "a plan of several devices on one");
  const std::uint64_t width = prepared.views[prepared.insn->inputs.size()].shape[1];
  return sums.collective->sum(sums.rank, prepared.output(0), ctx.total_rows * width);
}

}  // namespace

Status run(plan::ExecutionContext& ctx, std::span<const plan::PreparedInsn> plan, InstructionObserver* observer,
           const SumsAt& sums) noexcept {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const plan::PreparedInsn& prepared = plan[i];
    if (Status status = prepared.fn(ctx, prepared); !status.is_ok()) return status;
    if (prepared.insn->partial_sum) {
      if (Status status = take_sum(ctx, prepared, sums); !status.is_ok()) return status;
    }
    if (observer != nullptr) {
      if (Status status = observer->after(ctx, i, prepared); !status.is_ok()) return status;
    }
    if (ctx.counters != nullptr) {
      ++ctx.counters->per_opcode[static_cast<std::size_t>(prepared.insn->opcode)];
      ++ctx.counters->total;
    }
  }
  return Status::ok();
}

}  // namespace llorch::engine::inference
