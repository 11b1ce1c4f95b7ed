#pragma once
// What an adapter sees of a buffer or a weight: a pointer, and beside it a description.
#include <array>
#include <cstdint>

#include "engine/plan/dtype.h"

namespace llorch::engine::plan {

// A logical register of a plan (SSA: written once).
enum class RegisterRef : std::uint16_t {};
inline constexpr RegisterRef kInvalidRegister{0xFFFF};
constexpr RegisterRef reg(std::uint16_t index) { return RegisterRef{index}; }
constexpr std::uint16_t index(RegisterRef reference) { return static_cast<std::uint16_t>(reference); }

// No shape by design: shapes are in the parallel TensorViewDesc, which the loop never touches.
// A register's `ptr` is device memory. A weight's `reg` is kInvalidRegister and its `ptr` is what Backend::upload_weights
// returned, null for an absent optional slot.
struct TensorHandle {
  RegisterRef reg = kInvalidRegister;
  void* ptr = nullptr;
};
static_assert(sizeof(TensorHandle) == 2 * sizeof(void*));

inline constexpr std::uint32_t kTensorRankMax = 4;

// Shapes are row-major: the last dimension is contiguous. A linear weight is [out, in].
// For a register shape[0] is the row capacity; the rows of a step are in the ExecutionContext.
struct TensorViewDesc {
  DType dtype = DType::kF32;
  std::uint8_t rank = 0;
  std::array<std::uint32_t, kTensorRankMax> shape{};
};

}  // namespace llorch::engine::plan
