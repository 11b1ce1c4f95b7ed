#pragma once
// Element and block types of stored tensors. Block layouts are in quant_blocks.h.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llorch::engine::contract {

enum class DType : std::uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kQ8_0 = 3, kQ4_0 = 4, kI32 = 5 };

struct DTypeInfo {
  std::string_view name;         // as users and GGUF tools write it
  std::uint32_t block_elements;  // elements per block; 1 for plain types
  std::uint32_t block_bytes;
};

constexpr DTypeInfo dtype_info(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {"F32", 1, 4};
    case DType::kF16: return {"F16", 1, 2};
    case DType::kBF16: return {"BF16", 1, 2};
    case DType::kQ8_0: return {"Q8_0", 32, 34};
    case DType::kQ4_0: return {"Q4_0", 32, 18};
    case DType::kI32: return {"I32", 1, 4};
  }
  return {"?", 1, 0};
}

constexpr bool is_quantised(DType dtype) { return dtype_info(dtype).block_elements > 1; }

}  // namespace llorch::engine::contract
