#include "engine/inference/memory/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/inference/memory/state_arena.h"
#include "engine/inference/speculation/hidden_states.h"
#include "engine/inference/vision/image_encoder.h"

namespace llorch::engine::inference::memory {

using namespace plan;

namespace {

constexpr std::uint64_t kStateBytesMax = std::uint64_t{1} << 52;

// Scratch the hungriest instruction needs.
std::uint64_t workspace_bytes(const CompiledPlan& plan, const Backend& backend, const StepLimits& limits) {
  std::uint64_t bytes = 0;
  for (const Instruction& insn : plan.plan.instructions) {
    const AdapterWorkspaceFn need = backend.tables().workspace_bytes[static_cast<std::size_t>(insn.opcode)];
    bytes = std::max(bytes, need(plan.param_blocks[insn.param_block_id], limits, backend));
  }
  return bytes;
}

}  // namespace

std::uint64_t rope_table_bytes(const models::CompiledModel& model) {
  std::uint64_t bytes = 0;
  for (const models::RopeTableData& table : model.rope_tables) bytes += table.inv_freq.size() * sizeof(float);
  return bytes;
}

std::uint64_t long_rope_flag_bytes(const models::CompiledModel& model, const StepLimits& limits) {
  return model.long_rope_context == 0 ? 0 : limits.slots_max;
}

std::uint64_t summed_values_max(const models::CompiledModel& model, const StepLimits& limits) {
  const CompiledPlan& plan = model.plans.decoder_prefill;
  std::uint64_t width = 0;
  for (const Instruction& insn : plan.plan.instructions) {
    if (insn.partial_sum) width = std::max<std::uint64_t>(width, plan.register_specs[index(insn.outputs[0])].width);
  }
  return width * limits.rows_max;
}

std::uint64_t joined_logits_bytes(const models::CompiledModel& model, const StepLimits& limits) {
  const CompiledPlan& plan = model.plans.decoder_prefill;
  const std::uint32_t width = plan.register_specs[index(plan.plan.instructions.back().outputs[0])].width;
  if (width == model.config.output_width()) return 0;
  return std::uint64_t{limits.output_rows_max} * model.config.output_width() * sizeof(float);
}

BatchModel batch_model(const models::CompiledModel& model) {
  return {.vocab = model.config.vocab,
          .takes_images = model.plans.vision_encode.has_value(),
          .image_row_ids = model.config.vision.image_row_ids,
          .token_types = model.config.token_types};
}

MemoryPlan predict_memory(const MemoryInput& input, const Backend& backend) {
  const models::CompiledModel& model = input.model;
  const StepLimits& limits = input.limits;
  const bool takes_images = model.plans.vision_encode.has_value();
  MemoryPlan plan{
      .weight_dtype = model.weight_dtype, .context_tokens = limits.context_tokens_max, .slots = limits.slots_max};
  std::vector<StoredTensor> stored;
  for (const models::BoundTensor& tensor : model.tensors) {
    stored.push_back(tensor.as_source());
    const std::uint64_t bytes = backend.packed_weight_bytes(stored.back());
    plan.weights_bytes += bytes;
    if (tensor.is_widened_f8()) plan.widened_bytes += bytes;
  }
  plan.staging = backend.staging_bytes(stored);
  plan.kv_bytes = input.kv.bytes();
  plan.kv_growth_bytes = input.kv.growth_bytes();
  plan.state_bytes = plan.kv_bytes;
  for (const StateDescriptor& desc : model.plans.decoder_prefill.plan.state_descs) {
    // Sizes are the file's to claim: what no device has is capped, so that sums hold and the refusal is the usual one.
    const std::uint64_t per_slot = std::min(slot_state_bytes(desc), kStateBytesMax);
    const std::uint64_t copies = input.keeps_checkpoints && wants_checkpoint(desc) ? 2 : 1;
    plan.state_bytes += std::min(copies * limits.slots_max * per_slot, kStateBytesMax);
  }
  for (const PhysicalSpec& buffer : input.buffers) plan.activations_bytes += buffer.size_bytes;
  plan.activations_bytes += joined_logits_bytes(model, limits);
  plan.workspace_bytes = std::max(workspace_bytes(model.plans.decoder_prefill, backend, limits),
                                  workspace_bytes(model.plans.decoder_decode, backend, limits));
  plan.tables_bytes = rope_table_bytes(model) + long_rope_flag_bytes(model, limits) + input.kv.table_bytes() +
                      BatchBuilder::device_bytes(limits, batch_model(model));
  if (input.draw_limits.rows_max != 0) plan.tables_bytes += backend.device_sampler_bytes(input.draw_limits);
  if (model.plans.predict) {
    plan.activations_bytes += speculation::HiddenStates::device_bytes(limits, model.config.width);
    plan.workspace_bytes = std::max(plan.workspace_bytes, workspace_bytes(*model.plans.predict, backend, limits));
  }
  if (takes_images) {
    plan.workspace_bytes =
        std::max(plan.workspace_bytes, workspace_bytes(*model.plans.vision_encode, backend, input.encode_limits));
    plan.tables_bytes += vision::ImageEncoder::device_bytes(model.config.vision, input.encode_limits);
  }
  return plan;
}

base::Result<> check_fits(const MemoryPlan& plan, const Backend& backend) {
  const std::uint64_t budget = backend.memory_budget_bytes();
  const std::uint64_t free = budget - std::min(budget, backend.memory_used_bytes());
  if (plan.required_bytes() <= free) return {};
  const auto detail = [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); };
  return base::fail(base::Error{
      base::ErrorCode::kOutOfDeviceMemory,
      fmt::format("the model needs {} bytes ({} weights, {} state with {} of cache pages for {} slot(s) of {} "
                  "positions, {} activations, {} "
                  "workspace, {} tables, {} sums; while its weights are loaded, these and at least {} staging) and {} "
                  "of {} are "
                  "free; lower the context or the slots, or raise the budget",
                  plan.required_bytes(), plan.weights_bytes, plan.state_bytes, plan.kv_bytes, plan.slots,
                  plan.context_tokens, plan.activations_bytes, plan.workspace_bytes, plan.tables_bytes, plan.sums_bytes,
                  plan.staging.least, free, budget),
      {{"required_bytes", detail(plan.required_bytes())},
       {"staging_bytes", detail(plan.staging.least)},
       {"free_bytes", detail(free)},
       {"budget_bytes", detail(budget)}}});
}

}  // namespace llorch::engine::inference::memory
