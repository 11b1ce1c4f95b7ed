#pragma once
// The host reference of pack.h, written another way: packs on the host. Tests only.
#include <cstddef>
#include <span>

#include "engine/compute/cpu/pack.h"

namespace llorch::engine::compute::cuda::kernels {

// Packs units [begin, end) of the row-major stored matrix `source` (cuda/weights.h) to `packed`, which begins with unit `begin`
// and has room for them. Pure. REQUIRES: a shape that check_tensor() takes.
void pack_units_reference(const cpu::MatrixShape& shape, std::span<const std::byte> source, std::span<std::byte> packed,
                          std::size_t begin, std::size_t end);

}  // namespace llorch::engine::compute::cuda::kernels
