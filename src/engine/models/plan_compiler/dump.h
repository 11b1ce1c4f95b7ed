#pragma once
#include <span>
#include <string>

#include "engine/plan/plan.h"

namespace llorch::engine::models {

// A plan as text for people and golden files: one line per instruction. `tensor_names` is indexed by WeightBinding::tensor;
// without it tensors print as numbers.
std::string dump(const plan::CompiledPlan& plan, std::span<const std::string> tensor_names = {});
// One line: buffers of each kind and where each register lies.
std::string dump(const plan::PhysicalMapping& mapping);

}  // namespace llorch::engine::models
