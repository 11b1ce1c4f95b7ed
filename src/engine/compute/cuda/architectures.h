#pragma once
// Which GPUs machine code runs on. Pure.
#include <string_view>

namespace llorch::engine::compute::cuda {

// Whether code for one of `architectures` runs on a device of `compute_capability` ("9.0"). Code for sm_XY runs on X.Z
// with Z >= Y; code with a letter, which uses what only that chip has, on X.Y alone (CUDA C++ Programming Guide, "Binary
// Compatibility" and "Feature Set Compiler Targets").
bool runs_on(std::string_view architectures, std::string_view compute_capability);

}  // namespace llorch::engine::compute::cuda
