#pragma once
// What both ways to Triton have in common: the inputs that TensorRT-LLM's models name.
#include "adapter/engines/engine.h"

namespace llorch::adapter::engines {

std::span<const std::string_view> triton_parameters();
base::Error triton_tells_no_messages();

}  // namespace llorch::adapter::engines
