#include "engine/models/plan_compiler/physical.h"

#include <algorithm>
#include <vector>

#include "base/assert.h"

namespace llorch::engine::models {
namespace {

using plan::CompiledPlan;
using plan::Instruction;
using plan::PhysicalSpec;
using plan::RegisterRef;
using plan::RegisterSpec;
using plan::RowDomain;

struct Buffer {
  RegisterSpec spec;  // of its first register; later ones are no wider
  bool free = false;
};

class Scan {
 public:
  explicit Scan(const CompiledPlan& plan) : plan_(plan), physical_(plan.plan.register_count) {}

  void run(const plan::AdapterCapabilities& capabilities) {
    for (std::size_t i = 0; i < plan_.plan.instructions.size(); ++i) {
      const Instruction& insn = plan_.plan.instructions[i];
      const bool may_alias = capabilities[static_cast<std::size_t>(insn.opcode)].may_alias_output;
      for (std::size_t o = 0; o < insn.outputs.size(); ++o) {
        const RegisterRef out = insn.outputs[o];
        const bool in_place = may_alias && o == 0 && !insn.inputs.empty() && dies_at(i, insn.inputs[0]) &&
                              spec(insn.inputs[0]) == spec(out);
        physical_[index(out)] = in_place ? physical_[index(insn.inputs[0])] : take(spec(out));
      }
      release_dead(i, insn);
    }
  }

  std::vector<std::uint16_t> physical_take() { return std::move(physical_); }
  const std::vector<Buffer>& buffers() const { return buffers_; }

 private:
  const RegisterSpec& spec(RegisterRef ref) const { return plan_.register_specs[index(ref)]; }
  bool dies_at(std::size_t i, RegisterRef ref) const {
    return (plan_.liveness.kill_after_instruction[i][index(ref) / 64] >> (index(ref) % 64) & 1) != 0;
  }

  // The narrowest free buffer that is wide enough, else the widest, which grows.
  std::uint16_t take(const RegisterSpec& wanted) {
    const auto is_better = [&](std::uint32_t a, std::uint32_t b) {
      const bool a_fits = a >= wanted.width, b_fits = b >= wanted.width;
      return a_fits != b_fits ? a_fits : a_fits ? a < b : a > b;
    };
    std::size_t best = buffers_.size();
    for (std::size_t b = 0; b < buffers_.size() && wanted.rows == RowDomain::kBatchRows; ++b) {
      const RegisterSpec& have = buffers_[b].spec;
      const bool free = buffers_[b].free && have.rows == wanted.rows && have.dtype == wanted.dtype &&
                        have.align_bytes >= wanted.align_bytes;
      if (free && (best == buffers_.size() || is_better(have.width, buffers_[best].spec.width))) best = b;
    }
    if (best == buffers_.size()) buffers_.push_back({.spec = wanted});
    buffers_[best].spec.width = std::max(buffers_[best].spec.width, wanted.width);
    buffers_[best].free = false;
    return static_cast<std::uint16_t>(best);
  }

  void release_dead(std::size_t i, const Instruction& insn) {
    const auto taken_over = [&](std::uint16_t buffer) {
      for (RegisterRef out : insn.outputs) {
        if (physical_[index(out)] == buffer && !dies_at(i, out)) return true;
      }
      return false;
    };
    for (std::span<const RegisterRef> list : {insn.inputs, insn.outputs}) {
      for (RegisterRef ref : list) {
        const std::uint16_t buffer = physical_[index(ref)];
        if (dies_at(i, ref) && !taken_over(buffer)) buffers_[buffer].free = true;
      }
    }
  }

  const CompiledPlan& plan_;
  std::vector<std::uint16_t> physical_;
  std::vector<Buffer> buffers_;
};

}  // namespace

plan::PhysicalMapping map_registers(const CompiledPlan& plan, const plan::AdapterCapabilities& capabilities,
                                    const plan::StepLimits& limits, PlanArena& arena) {
  Scan scan(plan);
  scan.run(capabilities);
  std::vector<PhysicalSpec> specs;
  std::size_t batch_buffers = 0;
  for (const Buffer& buffer : scan.buffers()) {
    const bool batch = buffer.spec.rows == RowDomain::kBatchRows;
    batch_buffers += batch ? 1 : 0;
    const std::uint64_t rows = batch ? limits.rows_max : limits.output_rows_max;
    specs.push_back({.size_bytes = rows * buffer.spec.width * plan::dtype_info(buffer.spec.dtype).block_bytes,
                     .align_bytes = buffer.spec.align_bytes,
                     .rows = buffer.spec.rows});
  }
  ASSERT(batch_buffers <= plan.peak_registers, "buffers={} peak={}", batch_buffers, plan.peak_registers);
  const std::vector<std::uint16_t> physical = scan.physical_take();
  return {.register_to_physical = arena.copy(std::span<const std::uint16_t>(physical)),
          .physical_count = static_cast<std::uint16_t>(specs.size()),
          .physical_specs = arena.copy(std::span<const PhysicalSpec>(specs))};
}

}  // namespace llorch::engine::models
