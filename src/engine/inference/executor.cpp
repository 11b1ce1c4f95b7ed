#include "engine/inference/executor.h"

namespace llorch::engine::inference {

contract::Status run(contract::ExecutionContext& ctx, std::span<const contract::PreparedInsn> plan) noexcept {
  for (const contract::PreparedInsn& prepared : plan) {
    if (contract::Status status = prepared.fn(ctx, prepared); !status.is_ok()) return status;
    if (ctx.counters != nullptr) {
      ++ctx.counters->per_opcode[static_cast<std::size_t>(prepared.insn->opcode)];
      ++ctx.counters->total;
    }
  }
  return contract::Status::ok();
}

}  // namespace llorch::engine::inference
