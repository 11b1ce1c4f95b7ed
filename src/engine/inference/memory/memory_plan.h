#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/inference/batch_builder.h"
#include "engine/inference/kv_cache/kv_plan.h"
#include "engine/models/model.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference::memory {

// What a loaded model takes of a device, to the byte.
struct MemoryPlan {
  std::uint64_t weights_bytes = 0;
  std::uint64_t state_bytes = 0;  // cache pages, recurrent states of all slots, rows of images
  std::uint64_t activations_bytes = 0;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t tables_bytes = 0;     // rotation tables, page tables, row arrays, patches, draws
  std::uint64_t sums_bytes = 0;       // where several devices share the model: room to take their sums
  plan::StagingBytes staging;         // beside the weights while they are loaded, before the rest is taken
  std::uint64_t kv_bytes = 0;         // of the state: cache pages
  std::uint64_t kv_growth_bytes = 0;  // what they may take later on top of everything; in no sum here
  std::uint64_t widened_bytes = 0;    // of the weights: FP8 in the file, BF16 on this device
  plan::DType weight_dtype{};         // that most elements of matrices have on the device
  std::uint32_t context_tokens = 0;
  std::uint32_t slots = 0;

  // Of the loaded model.
  std::uint64_t total_bytes() const {
    return weights_bytes + state_bytes + activations_bytes + workspace_bytes + tables_bytes + sums_bytes;
  }
  // Without these it is not loaded.
  std::uint64_t required_bytes() const { return std::max(total_bytes(), weights_bytes + staging.least); }
  // The most it ever has at a time where there is room for all the staging it would like.
  std::uint64_t peak_bytes() const { return std::max(total_bytes(), weights_bytes + staging.wanted); }
};

struct MemoryInput {
  const models::CompiledModel& model;
  std::span<const plan::PhysicalSpec> buffers;  // shared by the plans
  const kv_cache::KvPlan& kv;
  plan::StepLimits limits;
  plan::StepLimits encode_limits;  // of the vision_encode plan, when there is one
  plan::DrawLimits draw_limits;    // no rows: nothing is drawn on the device
  bool keeps_checkpoints = false;  // of recurrent state
};

// The most values a step takes a sum of; 0 for a model of one device.
std::uint64_t summed_values_max(const models::CompiledModel& model, const plan::StepLimits& limits);

// Room for the rows of logits, whole, where the devices have the vocabulary shared out; otherwise 0.
std::uint64_t joined_logits_bytes(const models::CompiledModel& model, const plan::StepLimits& limits);

// What the rows of this model's batches have.
BatchModel batch_model(const models::CompiledModel& model);

// Without the room for sums, which is the collective's to tell. REQUIRES: the backend takes the model's weights and instructions.
MemoryPlan predict_memory(const MemoryInput& input, const plan::Backend& backend);

// OUT_OF_DEVICE_MEMORY with every part of the plan unless it fits what the backend has left.
base::Result<> check_fits(const MemoryPlan& plan, const plan::Backend& backend);

std::uint64_t rope_table_bytes(const models::CompiledModel& model);
// One byte per slot when slots choose between two rotations; see ExecutionContext::long_rope_of_slot.
std::uint64_t long_rope_flag_bytes(const models::CompiledModel& model, const plan::StepLimits& limits);

}  // namespace llorch::engine::inference::memory
