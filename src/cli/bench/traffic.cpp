#include "cli/bench/traffic.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/plan/kv_page_size.h"
#include "engine/plan/slots.h"

namespace llorch::cli::bench {
namespace {

using engine::models::CompiledModel;
using engine::plan::CompiledPlan;
using engine::plan::Instruction;
using engine::plan::MoeParams;
using engine::plan::Opcode;
using engine::plan::StateKind;
using engine::plan::WeightUse;

bool belongs_to_experts(const Instruction& instruction, std::size_t slot) {
  using engine::plan::MoeSlot;
  if (instruction.opcode != Opcode::kMoe) return false;
  const auto is = [slot](MoeSlot one) { return slot == static_cast<std::size_t>(one); };
  return is(MoeSlot::kGate) || is(MoeSlot::kUp) || is(MoeSlot::kDown) || is(MoeSlot::kGateBias) ||
         is(MoeSlot::kUpBias) || is(MoeSlot::kDownBias);
}

void count_instruction(const CompiledModel& model, const Instruction& instruction, std::set<std::uint32_t>& seen,
                       Traffic& out) {
  const CompiledPlan& plan = model.plans.decoder_decode;
  const auto specs = engine::plan::weight_slots(instruction.opcode);
  Traffic::Experts experts;
  if (instruction.opcode == Opcode::kMoe) {
    const auto& params = engine::plan::param_as<MoeParams>(plan.param_blocks[instruction.param_block_id]);
    experts = {.experts = params.experts, .experts_used = params.experts_used};
  }
  for (std::size_t slot = 0; slot < instruction.weights.size(); ++slot) {
    if (!instruction.weights[slot].present()) continue;
    const std::uint32_t index = plan.weight_bindings[instruction.weights[slot].index].tensor;
    const auto& tensor = model.tensors[index];
    const bool of_experts = belongs_to_experts(instruction, slot);
    const auto& spec = (*specs)[slot];
    if (spec.use == WeightUse::kRows) {
      // One row of it; the table is read whole only where it is the head, too.
      const auto& params =
          engine::plan::param_as<engine::plan::EmbeddingParams>(plan.param_blocks[instruction.param_block_id]);
      out.embedding_row_bytes += tensor.bytes_count() / std::max(1U, params.rows);
      continue;
    }
    if (spec.use == WeightUse::kMatrix && instruction.opcode != Opcode::kLmHead) {
      const std::uint64_t elements = tensor.elements_count();
      out.row_multiply_adds += of_experts ? elements / std::max(1U, experts.experts) * experts.experts_used : elements;
    }
    if (!seen.insert(index).second) continue;
    (of_experts ? experts.bytes : out.weights_bytes) += tensor.bytes_count();
  }
  if (experts.bytes != 0) out.experts.push_back(experts);
}

}  // namespace

Traffic traffic_of(const CompiledModel& model) {
  Traffic out;
  out.multiplies_integers = engine::plan::is_quantized(model.weight_dtype);
  std::set<std::uint32_t> seen;
  for (const Instruction& instruction : model.plans.decoder_decode.plan.instructions)
    count_instruction(model, instruction, seen, out);
  for (const auto& state : model.plans.decoder_decode.plan.state_descs) {
    if (state.kind == StateKind::kVision) continue;
    if (state.bytes_per_token != 0) {
      out.caches.push_back(
          {.bytes_per_token = state.size_bytes / engine::plan::kPageTokens, .window_tokens = state.window_tokens});
    } else {
      out.state_bytes += state.size_bytes;
    }
  }
  return out;
}

double decode_step_bytes(const Traffic& traffic, std::uint32_t batch, double positions) {
  double bytes = static_cast<double>(traffic.weights_bytes);
  for (const Traffic::Experts& layer : traffic.experts) {
    const double passed_over = 1 - static_cast<double>(layer.experts_used) / layer.experts;
    bytes += static_cast<double>(layer.bytes) * (1 - std::pow(passed_over, batch));
  }
  double of_sequence = static_cast<double>(traffic.embedding_row_bytes + traffic.state_bytes);
  for (const Traffic::Cache& cache : traffic.caches) {
    const double seen =
        cache.window_tokens == 0 ? positions : std::min(positions, static_cast<double>(cache.window_tokens));
    of_sequence += seen * static_cast<double>(cache.bytes_per_token);
  }
  return bytes + batch * of_sequence;
}

}  // namespace llorch::cli::bench
