#include "engine/models/model.h"

#include <algorithm>
#include <map>

#include "engine/contract/slots.h"
#include "engine/models/plan/compiler.h"
#include "engine/models/registry.h"
#include "engine/models/weights.h"

namespace llorch::engine::models {
namespace {

using contract::CompiledPlan;

contract::StoredTensor stored_tensor(const io::GgufTensor& tensor) {
  contract::StoredTensor stored{
      .dtype = tensor.dtype, .rank = static_cast<std::uint8_t>(tensor.rank), .shape = {}, .bytes = tensor.data};
  for (std::uint32_t d = 0; d < tensor.rank; ++d)
    stored.shape[d] = static_cast<std::uint32_t>(tensor.dims[tensor.rank - 1 - d]);
  return stored;
}

// Adds the uses a plan makes of each tensor.
void collect_uses(const CompiledPlan& plan, std::map<std::uint32_t, std::uint8_t>& uses) {
  for (const contract::Instruction& insn : plan.plan.instructions) {
    const std::span<const contract::SlotSpec> slots = *contract::weight_slots(insn.opcode);
    for (std::size_t s = 0; s < slots.size(); ++s) {
      if (!insn.weights[s].present()) continue;
      uses[plan.weight_bindings[insn.weights[s].index].tensor] |= static_cast<std::uint8_t>(slots[s].use);
    }
  }
}

void describe_weights(const io::GgufFile& file, CompiledModel& model) {
  std::map<std::uint32_t, std::uint8_t> uses;
  collect_uses(model.plans.decoder_prefill, uses);
  collect_uses(model.plans.decoder_decode, uses);
  std::map<contract::DType, std::uint64_t> elements_of;
  for (const auto& [number, use] : uses) {
    const io::GgufTensor& tensor = file.tensors()[number];
    BoundTensor bound{.tensor = number, .name = tensor.name, .stored = stored_tensor(tensor)};
    bound.stored.uses = use;
    model.parameters_count += tensor.elements_count();
    if ((use & static_cast<std::uint8_t>(contract::WeightUse::kVector)) == 0)
      elements_of[tensor.dtype] += tensor.elements_count();
    model.tensors.push_back(bound);
  }
  const auto most = std::ranges::max_element(elements_of, {}, [](const auto& entry) { return entry.second; });
  if (most != elements_of.end()) model.weight_dtype = most->first;
}

}  // namespace

base::Result<CompiledModel> compile_model(const io::GgufFile& file, contract::DType kv_dtype) {
  const Family* family = TRY(find_family(file));
  CompiledModel model;
  model.config = TRY(family->read_config(file));
  TRY(check_tensor_names(file, *family, model.config.layers));
  model.arena = std::make_unique<PlanArena>();
  const auto compile = [&](contract::ExecutionMode mode) {
    return compile_plan({file, *family, model.config, mode, kv_dtype}, *model.arena);
  };
  model.plans.decoder_prefill = TRY(compile(contract::ExecutionMode::kPrefill));
  model.plans.decoder_decode = TRY(compile(contract::ExecutionMode::kDecode));
  const std::vector<float> divisors = TRY(read_rope_divisors(file));
  model.rope_tables.push_back(TRY(make_rope_table(model.config.rope, divisors)));
  describe_weights(file, model);
  return model;
}

}  // namespace llorch::engine::models
