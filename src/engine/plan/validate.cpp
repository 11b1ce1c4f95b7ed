#include "engine/plan/validate.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "engine/plan/slots.h"

namespace llorch::engine::plan {
namespace {

using base::ErrorCode;
using base::Result;

std::string where(std::size_t i, const Instruction& insn) {
  return fmt::format("instruction {} ({})", i, opcode_name(insn.opcode));
}

Result<> check_states(std::span<const StateDescriptor> descs) {
  for (std::size_t i = 0; i < descs.size(); ++i) {
    const StateDescriptor& desc = descs[i];
    if (!std::has_single_bit(desc.align_bytes)) {
      return base::fail(ErrorCode::kInvalidStateAlignment,
                        fmt::format("state {} has alignment {}; it must be a power of two", desc.id, desc.align_bytes));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (descs[j].id == desc.id) {
        return base::fail(ErrorCode::kDuplicateStateDescriptorId, fmt::format("two states have id {}", desc.id));
      }
    }
  }
  return {};
}

Result<> check_register_specs(const CompiledPlan& plan) {
  if (plan.register_specs.size() != plan.plan.register_count) {
    return base::fail(
        ErrorCode::kInvalidRegisterSpec,
        fmt::format("{} register specs for {} registers", plan.register_specs.size(), plan.plan.register_count));
  }
  for (std::size_t r = 0; r < plan.register_specs.size(); ++r) {
    const RegisterSpec& spec = plan.register_specs[r];
    if (spec.width == 0 || dtype_info(spec.dtype).block_bytes == 0 || dtype_info(spec.dtype).block_elements != 1 ||
        !std::has_single_bit(spec.align_bytes)) {
      return base::fail(ErrorCode::kInvalidRegisterSpec,
                        fmt::format("register {}: width {}, type {}, alignment {}", r, spec.width,
                                    dtype_info(spec.dtype).name, spec.align_bytes));
    }
  }
  return {};
}

Result<> check_params(const CompiledPlan& plan, std::size_t i) {
  const Instruction& insn = plan.plan.instructions[i];
  if (insn.param_block_id == kNoParamBlock) {
    return base::fail(ErrorCode::kMissingParamBlock, where(i, insn) + " names no parameter block");
  }
  if (insn.param_block_id >= plan.param_blocks.size()) {
    return base::fail(ErrorCode::kUnknownParamBlockId, fmt::format("{} names parameter block {} of {}", where(i, insn),
                                                                   insn.param_block_id, plan.param_blocks.size()));
  }
  const ParamBlock& block = plan.param_blocks[insn.param_block_id];
  if (block.opcode != insn.opcode) {
    return base::fail(ErrorCode::kParamBlockOpcodeMismatch,
                      fmt::format("{} has a parameter block of {}", where(i, insn), opcode_name(block.opcode)));
  }
  std::uint32_t stored = 0;
  if (block.data.size() >= sizeof stored) std::memcpy(&stored, block.data.data(), sizeof stored);
  const bool aligned = reinterpret_cast<std::uintptr_t>(block.data.data()) % kParamBlockAlign == 0;
  if (block.version != kParamBlockVersion || stored != kind_version(insn.opcode) || !aligned ||
      block.data.size() != param_struct_bytes(insn.opcode)) {
    return base::fail(
        ErrorCode::kInvalidParamBlockABI,
        fmt::format("{}: parameter block version {}, {} bytes; expected version {}, {} bytes", where(i, insn),
                    block.version, block.data.size(), kParamBlockVersion, param_struct_bytes(insn.opcode)));
  }
  return {};
}

Result<> check_weights(const CompiledPlan& plan, std::size_t i) {
  const Instruction& insn = plan.plan.instructions[i];
  const std::span<const SlotSpec> slots = *weight_slots(insn.opcode);
  if (insn.weights.size() != slots.size()) {
    return base::fail(
        ErrorCode::kInvalidWeightRefCount,
        fmt::format("{} has {} weights, its opcode {} slots", where(i, insn), insn.weights.size(), slots.size()));
  }
  const auto missing = [&](std::string_view slot) {
    return base::fail(ErrorCode::kMissingWeight, fmt::format("{} has no weight in slot {}", where(i, insn), slot));
  };
  for (std::size_t s = 0; s < slots.size(); ++s) {
    const WeightRef ref = insn.weights[s];
    if (!ref.present()) {
      if (slots[s].required) return missing(slots[s].name);
    } else if (ref.index >= plan.weight_bindings.size() || plan.weight_bindings[ref.index].index != ref.index) {
      return base::fail(ErrorCode::kInvalidWeightRefIndex,
                        fmt::format("{} slot {} names weight {} of {}", where(i, insn), slots[s].name, ref.index,
                                    plan.weight_bindings.size()));
    }
  }
  if (insn.opcode == Opcode::kMultiheadAttention &&
      param_as<AttentionParams>(plan.param_blocks[insn.param_block_id]).shares_cache == 0) {
    for (const AttentionSlot slot : {AttentionSlot::kK, AttentionSlot::kV}) {
      const auto s = static_cast<std::size_t>(slot);
      if (!insn.weights[s].present()) return missing(slots[s].name);
    }
  }
  if (insn.opcode == Opcode::kMlaAttention) {
    const auto present = [&](MlaSlot slot) { return insn.weights[static_cast<std::size_t>(slot)].present(); };
    for (MlaSlot slot : {MlaSlot::kQA, MlaSlot::kQANorm, MlaSlot::kQB}) {
      if (present(slot) == present(MlaSlot::kQ)) return missing("q, or q_a, q_a_norm and q_b");
    }
  }
  return {};
}

// Of the positions that an instruction reads a window of; 0 = it may read all.
std::uint32_t window_of(Opcode opcode, const ParamBlock& params) {
  if (opcode == Opcode::kMultiheadAttention) return param_as<AttentionParams>(params).window;
  if (opcode != Opcode::kCompressedAttention) return 0;
  const auto& p = param_as<CompressedAttentionParams>(params);
  return p.rate == 0 ? p.window : 0;
}

// Registers read beyond those of the opcode.
std::size_t further_inputs(Opcode opcode, const ParamBlock& params) {
  if (opcode == Opcode::kMlaAttention) return param_as<MlaAttentionParams>(params).index_words != 0 ? 1 : 0;
  if (opcode == Opcode::kMoe) return param_as<MoeParams>(params).router_apart != 0 ? 1 : 0;
  if (opcode == Opcode::kCompressedAttention) return param_as<CompressedAttentionParams>(params).rate != 0 ? 1 : 0;
  return 0;
}

Result<> check_inputs(const CompiledPlan& plan, std::size_t i) {
  const Instruction& insn = plan.plan.instructions[i];
  const std::size_t wanted =
      opcode_info(insn.opcode)->inputs + further_inputs(insn.opcode, plan.param_blocks[insn.param_block_id]);
  if (insn.inputs.size() == wanted) return {};
  return base::fail(
      ErrorCode::kInvalidInstructionBinding,
      fmt::format("{} reads {} registers; its parameters ask for {}", where(i, insn), insn.inputs.size(), wanted));
}

Result<> check_state_binding(const CompiledPlan& plan, std::size_t i) {
  const Instruction& insn = plan.plan.instructions[i];
  const bool named = insn.state_block_id != kNoStateBlock;
  const ParamBlock& params = plan.param_blocks[insn.param_block_id];
  const bool stateless = insn.opcode == Opcode::kMultiheadAttention && param_as<AttentionParams>(params).causal == 0;
  if (named != (opcode_info(insn.opcode)->needs_state && !stateless)) {
    return base::fail(ErrorCode::kInvalidInstructionBinding,
                      where(i, insn) + (named ? " names a state its opcode does not use" : " names no state"));
  }
  if (!named) return {};
  const auto desc = std::ranges::find(plan.plan.state_descs, insn.state_block_id, &StateDescriptor::id);
  if (desc == plan.plan.state_descs.end()) {
    return base::fail(
        ErrorCode::kUnknownStateDescriptorId,
        fmt::format("{} names state {}, which the plan does not declare", where(i, insn), insn.state_block_id));
  }
  const std::uint32_t window = window_of(insn.opcode, params);
  if (desc->window_tokens != 0 && (window == 0 || window > desc->window_tokens)) {
    return base::fail(ErrorCode::kInvalidInstructionBinding,
                      fmt::format("{} sees further back than the {} positions that state {} keeps", where(i, insn),
                                  desc->window_tokens, insn.state_block_id));
  }
  return {};
}

// Producer and last reader of every register, gathered in instruction order.
struct Lives {
  std::vector<std::uint32_t> producer;
  std::vector<std::uint32_t> last_read;
};

Result<> check_registers(const CompiledPlan& plan, std::size_t i, Lives& lives) {
  const Instruction& insn = plan.plan.instructions[i];
  const OpcodeInfo& info = *opcode_info(insn.opcode);
  // How many its parameters ask for, check_inputs() knows.
  if (insn.inputs.size() < info.inputs || insn.outputs.size() != info.outputs) {
    return base::fail(ErrorCode::kInvalidInstructionBinding,
                      fmt::format("{} reads {} and writes {} registers; its opcode {} and {}", where(i, insn),
                                  insn.inputs.size(), insn.outputs.size(), info.inputs, info.outputs));
  }
  const auto check_range = [&](RegisterRef ref) -> Result<> {
    if (index(ref) < plan.plan.register_count) return {};
    return base::fail(ErrorCode::kInvalidRegisterRef,
                      fmt::format("{} names register {} of {}", where(i, insn), index(ref), plan.plan.register_count));
  };
  for (RegisterRef ref : insn.inputs) {
    TRY(check_range(ref));
    if (lives.producer[index(ref)] == kNeverRead) {
      return base::fail(ErrorCode::kRegisterReadBeforeWrite,
                        fmt::format("{} reads register {} before it is written", where(i, insn), index(ref)));
    }
    lives.last_read[index(ref)] = static_cast<std::uint32_t>(i);
  }
  for (RegisterRef ref : insn.outputs) {
    TRY(check_range(ref));
    if (lives.producer[index(ref)] != kNeverRead) {
      return base::fail(ErrorCode::kRegisterRedefined,
                        fmt::format("{} writes register {}, which instruction {} wrote", where(i, insn), index(ref),
                                    lives.producer[index(ref)]));
    }
    lives.producer[index(ref)] = static_cast<std::uint32_t>(i);
  }
  return {};
}

Result<> check_all_used(const CompiledPlan& plan, const Lives& lives) {
  for (std::size_t r = 0; r < lives.producer.size(); ++r) {
    if (lives.producer[r] == kNeverRead) {
      return base::fail(ErrorCode::kInvalidRegisterRef, fmt::format("register {} has no producer", r));
    }
  }
  const std::span<const Instruction> insns = plan.plan.instructions;
  for (std::size_t i = 0; i + 1 < insns.size(); ++i) {
    const auto read = [&](RegisterRef ref) { return lives.last_read[index(ref)] != kNeverRead; };
    if (!insns[i].outputs.empty() && std::ranges::none_of(insns[i].outputs, read)) {
      return base::fail(ErrorCode::kInvalidInstructionBinding, where(i, insns[i]) + " writes what nothing reads");
    }
  }
  return {};
}

Result<> check_liveness(const CompiledPlan& plan, const Lives& lives) {
  const LivenessMap& map = plan.liveness;
  const std::size_t insn_count = plan.plan.instructions.size();
  const std::size_t words = (plan.plan.register_count + std::size_t{63}) / 64;
  const auto broken = [](std::string message) { return base::fail(ErrorCode::kInvalidLiveness, std::move(message)); };
  if (!std::ranges::equal(map.register_last_read, lives.last_read))
    return broken("last reads do not match the instructions");
  if (map.kill_after_instruction.size() != insn_count) {
    return broken(fmt::format("{} kill rows for {} instructions", map.kill_after_instruction.size(), insn_count));
  }
  std::vector<std::vector<std::uint64_t>> expected(insn_count, std::vector<std::uint64_t>(words, 0));
  std::vector<std::int32_t> change(insn_count + 1, 0);
  for (std::size_t r = 0; r < lives.producer.size(); ++r) {
    const std::uint32_t dies = lives.last_read[r] != kNeverRead ? lives.last_read[r] : lives.producer[r];
    expected[dies][r / 64] |= std::uint64_t{1} << (r % 64);
    ++change[lives.producer[r]];
    --change[dies + 1];
  }
  for (std::size_t i = 0; i < insn_count; ++i) {
    if (!std::ranges::equal(map.kill_after_instruction[i], expected[i])) {
      return broken(fmt::format("kill row {} does not match the last reads", i));
    }
  }
  std::int32_t alive = 0;
  std::int32_t peak = 0;
  for (std::size_t i = 0; i < insn_count; ++i) peak = std::max(peak, alive += change[i]);
  if (peak != plan.peak_registers) {
    return base::fail(ErrorCode::kInvalidPeakRegisters,
                      fmt::format("peak is given as {}, the instructions have {}", plan.peak_registers, peak));
  }
  return {};
}

base::Error broken_handoff(std::string message) {
  return base::Error{ErrorCode::kInvalidVisionStageHandoff, std::move(message), {}};
}

// How one side sees the rows of the vision state.
struct VisionSide {
  std::uint32_t parts = 0;
  std::uint32_t width = 0;
  std::vector<std::uint32_t> uses;  // [parts] instructions per part
};

Result<> add_use(VisionSide& side, std::uint32_t parts, std::uint32_t part, std::uint32_t width) {
  if (side.uses.empty()) side = {.parts = parts, .width = width, .uses = std::vector<std::uint32_t>(parts, 0)};
  if (parts != side.parts || width != side.width || part >= parts) {
    return base::fail(broken_handoff(
        fmt::format("part {} of {} x {} where others have {} x {}", part, parts, width, side.parts, side.width)));
  }
  ++side.uses[part];
  return {};
}

Result<VisionSide> vision_side(const CompiledPlan& plan) {
  VisionSide side;
  for (const Instruction& insn : plan.plan.instructions) {
    const ParamBlock& params = plan.param_blocks[insn.param_block_id];
    if (insn.opcode == Opcode::kVisionSpatialMerge) {
      const auto& p = param_as<VisionSpatialMergeParams>(params);
      TRY(add_use(side, p.parts, 0, p.width_out));
    } else if (insn.opcode == Opcode::kVisionDeepstackExtract) {
      const auto& p = param_as<VisionDeepstackExtractParams>(params);
      TRY(add_use(side, p.parts, p.part, p.width_out));
    } else if (insn.opcode == Opcode::kVisionScatter) {
      const auto& p = param_as<VisionScatterParams>(params);
      TRY(add_use(side, p.parts, p.part, p.width));
    }
  }
  return side;
}

const StateDescriptor* vision_state(const CompiledPlan& plan) {
  const auto found = std::ranges::find(plan.plan.state_descs, kVisionStateId, &StateDescriptor::id);
  return found == plan.plan.state_descs.end() ? nullptr : &*found;
}

Result<> check_vision_state(const CompiledPlan& encode, const CompiledPlan& prefill, std::uint64_t row_bytes) {
  const StateDescriptor* written = vision_state(encode);
  const StateDescriptor* read = vision_state(prefill);
  if (written == nullptr || read == nullptr || *written != *read || written->kind != StateKind::kVision ||
      written->lifecycle != StateLifecycle::kRequestScoped || written->size_bytes < row_bytes) {
    return base::fail(broken_handoff("the plans do not declare one request-scoped vision state that holds a row"));
  }
  return {};
}

}  // namespace

Result<> validate_vision_handoff(const ModelPlans& plans) {
  const VisionSide read = TRY(vision_side(plans.decoder_prefill));
  if (!TRY(vision_side(plans.decoder_decode)).uses.empty()) {
    return base::fail(broken_handoff("the decode plan takes images, which never come with decode"));
  }
  if (plans.vision_encode.has_value() == read.uses.empty()) {
    return base::fail(broken_handoff(read.uses.empty() ? "images are encoded, but the prefill plan takes none"
                                                       : "the prefill plan takes images, but nothing encodes them"));
  }
  if (read.uses.empty()) return {};
  const VisionSide written = TRY(vision_side(*plans.vision_encode));
  if (written.parts != read.parts || written.width != read.width) {
    return base::fail(broken_handoff(fmt::format("rows of {} x {} are encoded, rows of {} x {} are read", written.parts,
                                                 written.width, read.parts, read.width)));
  }
  for (std::uint32_t part = 0; part < read.parts; ++part) {
    if (written.uses[part] == 1 && read.uses[part] != 0) continue;
    return base::fail(broken_handoff(
        fmt::format("part {} is written {} times and read {} times", part, written.uses[part], read.uses[part])));
  }
  return check_vision_state(*plans.vision_encode, plans.decoder_prefill,
                            std::uint64_t{read.parts} * read.width * sizeof(float));
}

Result<> validate(const CompiledPlan& plan) {
  TRY(check_states(plan.plan.state_descs));
  TRY(check_register_specs(plan));
  Lives lives{std::vector<std::uint32_t>(plan.plan.register_count, kNeverRead),
              std::vector<std::uint32_t>(plan.plan.register_count, kNeverRead)};
  for (std::size_t i = 0; i < plan.plan.instructions.size(); ++i) {
    const Instruction& insn = plan.plan.instructions[i];
    if (!is_opcode(insn.opcode)) {
      return base::fail(ErrorCode::kUnsupportedOpcode,
                        fmt::format("instruction {}: {} is no opcode", i, static_cast<int>(insn.opcode)));
    }
    TRY(check_registers(plan, i, lives));
    TRY(check_params(plan, i));
    TRY(check_inputs(plan, i));
    TRY(check_weights(plan, i));
    TRY(check_state_binding(plan, i));
  }
  TRY(check_all_used(plan, lives));
  return check_liveness(plan, lives);
}

}  // namespace llorch::engine::plan
