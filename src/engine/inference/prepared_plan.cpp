#include "engine/inference/prepared_plan.h"

#include <fmt/format.h>

#include "engine/plan/slots.h"

namespace llorch::engine::inference {
namespace {

using namespace plan;
using base::ErrorCode;

base::Result<> check_matrix_types(const PrepareInput& input, const Instruction& insn) {
  const std::span<const SlotSpec> slots = *weight_slots(insn.opcode);
  const std::uint64_t mask =
      input.backend.tables().capabilities[static_cast<std::size_t>(insn.opcode)].dtype_mask_weights;
  for (std::size_t s = 0; s < slots.size(); ++s) {
    if (!insn.weights[s].present() || slots[s].use == WeightUse::kVector) continue;
    const memory::DeviceWeight& weight = input.weights.at(input.plan.weight_bindings[insn.weights[s].index].tensor);
    if ((mask & dtype_bit(weight.view.dtype)) != 0) continue;
    return base::fail(ErrorCode::kWeightDTypeUnsupported,
                      fmt::format("{} slot {}: {} has no kernel for {}", opcode_name(insn.opcode), slots[s].name,
                                  input.backend.device_class(), dtype_info(weight.view.dtype).name));
  }
  return {};
}

TensorViewDesc register_view(const RegisterSpec& spec, const StepLimits& limits) {
  const std::uint32_t rows = spec.rows == RowDomain::kBatchRows ? limits.rows_max : limits.output_rows_max;
  return {.dtype = spec.dtype, .rank = 2, .shape = {rows, spec.width}};
}

}  // namespace

base::Result<> check_supported(const CompiledPlan& plan, const Backend& backend, const StepLimits& limits) {
  const AdapterTables& tables = backend.tables();
  for (std::size_t i = 0; i < plan.plan.instructions.size(); ++i) {
    const Opcode opcode = plan.plan.instructions[i].opcode;
    const auto row = static_cast<std::size_t>(opcode);
    if (tables.run[row] == nullptr) {
      return base::fail(ErrorCode::kUnsupportedOpcode, fmt::format("instruction {}: {} has no adapter for {}", i,
                                                                   backend.device_class(), opcode_name(opcode)));
    }
    const AdapterCapability& capability = tables.capabilities[row];
    if (!capability.supports_batch && limits.slots_max > 1) {
      return base::fail(ErrorCode::kBatchUnsupported,
                        fmt::format("{} runs one slot on {}, {} are configured", opcode_name(opcode),
                                    backend.device_class(), limits.slots_max));
    }
  }
  return {};
}

base::Result<> check_instructions(const CompiledPlan& plan, std::span<const models::BoundTensor> tensors,
                                  const StepLimits& limits, Backend& backend) {
  static std::byte stands_for_weight;  // nothing is read there
  std::vector<TensorHandle> handles;
  std::vector<TensorViewDesc> views;
  for (const Instruction& insn : plan.plan.instructions) {
    handles.assign(insn.weights.size(), {});
    views.assign(insn.weights.size(), {});
    for (std::size_t s = 0; s < insn.weights.size(); ++s) {
      if (!insn.weights[s].present()) continue;
      const StoredTensor& stored = tensors[plan.weight_bindings[insn.weights[s].index].tensor].stored;
      handles[s].ptr = &stands_for_weight;
      views[s] = {.dtype = stored.dtype, .rank = stored.rank, .shape = stored.shape};
    }
    const PrepareArgs args{.backend = backend,
                           .insn = insn,
                           .params = plan.param_blocks[insn.param_block_id],
                           .weights = handles,
                           .views = views,
                           .limits = limits};
    TRY(backend.tables().prepare[static_cast<std::size_t>(insn.opcode)](args));
  }
  return {};
}

base::Result<PreparedPlan> PreparedPlan::make(const PrepareInput& input) {
  TRY(check_supported(input.plan, input.backend, input.limits));
  PreparedPlan prepared;
  std::size_t operands = 0;
  for (const Instruction& insn : input.plan.plan.instructions) {
    operands += insn.inputs.size() + insn.outputs.size() + insn.weights.size();
  }
  prepared.instructions_.reserve(input.plan.plan.instructions.size());
  prepared.handles_.reserve(operands);
  prepared.views_.reserve(operands);
  for (const Instruction& insn : input.plan.plan.instructions) TRY(prepared.add(input, insn));
  return prepared;
}

base::Result<> PreparedPlan::add(const PrepareInput& input, const Instruction& insn) {
  TRY(check_matrix_types(input, insn));
  const std::size_t first = handles_.size();
  for (std::span<const RegisterRef> list : {insn.inputs, insn.outputs}) {
    for (RegisterRef ref : list) {
      handles_.push_back({.reg = ref, .ptr = input.buffers[input.mapping.register_to_physical[index(ref)]]});
      views_.push_back(register_view(input.plan.register_specs[index(ref)], input.limits));
    }
  }
  const std::size_t first_weight = handles_.size();
  for (WeightRef ref : insn.weights) {
    const memory::DeviceWeight weight =
        ref.present() ? input.weights.at(input.plan.weight_bindings[ref.index].tensor) : memory::DeviceWeight{};
    handles_.push_back({.reg = kInvalidRegister, .ptr = weight.ptr});
    views_.push_back(weight.view);
  }
  const auto row = static_cast<std::size_t>(insn.opcode);
  PreparedInsn prepared{.fn = input.backend.tables().run[row], .insn = &insn};
  prepared.regs = std::span<const TensorHandle>(handles_).subspan(first);
  prepared.views = std::span<const TensorViewDesc>(views_).subspan(first);
  prepared.params = &input.plan.param_blocks[insn.param_block_id];
  for (std::size_t s = 0; s < input.states.size(); ++s) {
    if (insn.state_block_id != kNoStateBlock && input.states[s].id == insn.state_block_id)
      prepared.states = input.states.subspan(s, 1);
  }
  const PrepareArgs args{.backend = input.backend,
                         .insn = insn,
                         .params = *prepared.params,
                         .weights = std::span<const TensorHandle>(handles_).subspan(first_weight),
                         .views = std::span<const TensorViewDesc>(views_).subspan(first_weight),
                         .limits = input.limits};
  TRY(input.backend.tables().prepare[row](args));
  instructions_.push_back(prepared);
  return {};
}

}  // namespace llorch::engine::inference
