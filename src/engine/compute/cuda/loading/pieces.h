#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/compute/cuda/driver.h"
#include "engine/compute/cuda/kernels/packing/pack.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute::cuda::loading {

// Whole units of one matrix (weights.h), or elements of a vector.
struct Piece {
  std::uint32_t tensor = 0;
  std::uint64_t stored_begin = 0;  // in the tensor
  std::uint64_t stored_bytes = 0;
  std::uint64_t packed_begin = 0;  // in the tensor's weight
  kernels::PackArgs pack;          // without addresses
};

// Every byte of the tensors once, in order; pieces of at most `piece_bytes`, unless a unit has more. Pure.
std::vector<Piece> cut(std::span<const plan::StoredTensor> tensors, std::uint64_t piece_bytes);
// How many these are, and the bytes of the largest, without making them: there may be millions.
std::uint64_t pieces_count(std::span<const plan::StoredTensor> tensors, std::uint64_t piece_bytes);
std::uint64_t largest_piece_bytes(std::span<const plan::StoredTensor> tensors, std::uint64_t piece_bytes);

}  // namespace llorch::engine::compute::cuda::loading
