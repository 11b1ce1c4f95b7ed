#include "engine/inference/executor.h"

namespace llorch::engine::inference {

using contract::Status;

Status run(contract::ExecutionContext& ctx, std::span<const contract::PreparedInsn> plan,
           InstructionObserver* observer) noexcept {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const contract::PreparedInsn& prepared = plan[i];
    if (Status status = prepared.fn(ctx, prepared); !status.is_ok()) return status;
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
