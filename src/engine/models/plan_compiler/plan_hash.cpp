#include "engine/models/plan_compiler/plan_hash.h"

#include <algorithm>

#include "base/sha256.h"

namespace llorch::engine::models {
namespace {

using namespace plan;

// Beside the opcode, which is a byte.
constexpr std::uint64_t kPartialSum = 0x100;

// Lists are written with their length first, so no two plans share a form.
class HashWriter {
 public:
  void number(std::uint64_t value) {
    sha_.update_u32_le(static_cast<std::uint32_t>(value));
    sha_.update_u32_le(static_cast<std::uint32_t>(value >> 32));
  }
  void registers(std::span<const RegisterRef> list) {
    number(list.size());
    for (RegisterRef ref : list) number(index(ref));
  }
  void bytes(std::span<const std::byte> data) {
    number(data.size());
    sha_.update(data);
  }
  Hash128 digest() const {
    Hash128 hash;
    std::ranges::copy_n(sha_.digest().begin(), hash.size(), hash.begin());
    return hash;
  }

 private:
  base::Sha256 sha_;
};

void write_instruction(HashWriter& writer, const Instruction& insn) {
  writer.number(static_cast<std::uint64_t>(insn.opcode) | (insn.partial_sum ? kPartialSum : 0));
  writer.registers(insn.inputs);
  writer.registers(insn.outputs);
  writer.number(insn.weights.size());
  for (WeightRef ref : insn.weights) writer.number(ref.index);
  writer.number(insn.param_block_id);
  writer.number(insn.state_block_id);
}

}  // namespace

Hash128 hash_plan(const CompiledPlan& plan, ExecutionMode mode) {
  HashWriter writer;
  writer.number(static_cast<std::uint64_t>(mode));
  writer.number(plan.plan.instructions.size());
  for (const Instruction& insn : plan.plan.instructions) write_instruction(writer, insn);
  writer.number(plan.plan.state_descs.size());
  for (const StateDescriptor& desc : plan.plan.state_descs) {
    for (std::uint64_t value :
         {std::uint64_t{desc.id}, static_cast<std::uint64_t>(desc.kind), static_cast<std::uint64_t>(desc.lifecycle),
          std::uint64_t{desc.zero_init}, std::uint64_t{desc.forkable}, std::uint64_t{desc.align_bytes},
          std::uint64_t{desc.bytes_per_token}, desc.size_bytes, std::uint64_t{desc.window_tokens}}) {
      writer.number(value);
    }
  }
  writer.number(plan.param_blocks.size());
  for (const ParamBlock& block : plan.param_blocks) writer.bytes(block.data);
  writer.number(plan.weight_bindings.size());
  for (const WeightBinding& binding : plan.weight_bindings) {
    const WeightKey& key = binding.key;
    for (std::uint64_t value : {std::uint64_t{key.layer}, static_cast<std::uint64_t>(key.opcode),
                                std::uint64_t{key.slot}, std::uint64_t{key.variant}, std::uint64_t{binding.tensor}}) {
      writer.number(value);
    }
  }
  writer.number(plan.register_specs.size());
  for (const RegisterSpec& spec : plan.register_specs) {
    for (std::uint64_t value :
         {std::uint64_t{spec.width}, static_cast<std::uint64_t>(spec.dtype), std::uint64_t{0},  // once a layout
          static_cast<std::uint64_t>(spec.rows), std::uint64_t{spec.align_bytes}}) {
      writer.number(value);
    }
  }
  return writer.digest();
}

}  // namespace llorch::engine::models
