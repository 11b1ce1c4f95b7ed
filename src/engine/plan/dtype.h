#pragma once
// Element and block types of stored tensors. Block layouts are in quant_blocks.h.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llorch::engine::plan {

// Numbers are part of plan hashes: new types take the next one, none is ever given twice.
enum class DType : std::uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kQ8_0 = 3,
  kQ4_0 = 4,
  kI32 = 5,
  kQ4_1 = 6,
  kQ5_0 = 7,
  kQ5_1 = 8,
  kQ2_K = 9,
  kQ3_K = 10,
  kQ4_K = 11,
  kQ5_K = 12,
  kQ6_K = 13,
  kIQ4_NL = 14,
  kIQ4_XS = 15,
  kMXFP4 = 16,
  kF8_E4M3 = 17,
};
inline constexpr std::size_t kDTypesCount = 18;

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
    case DType::kQ4_1: return {"Q4_1", 32, 20};
    case DType::kQ5_0: return {"Q5_0", 32, 22};
    case DType::kQ5_1: return {"Q5_1", 32, 24};
    case DType::kQ2_K: return {"Q2_K", 256, 84};
    case DType::kQ3_K: return {"Q3_K", 256, 110};
    case DType::kQ4_K: return {"Q4_K", 256, 144};
    case DType::kQ5_K: return {"Q5_K", 256, 176};
    case DType::kQ6_K: return {"Q6_K", 256, 210};
    case DType::kIQ4_NL: return {"IQ4_NL", 32, 18};
    case DType::kIQ4_XS: return {"IQ4_XS", 256, 136};
    case DType::kMXFP4: return {"MXFP4", 32, 17};
    case DType::kF8_E4M3: return {"F8_E4M3", 128, 132};
  }
  return {"?", 1, 0};
}

// Blocks of scaled integers. F8_E4M3 has blocks too, of scaled floats.
constexpr bool is_quantized(DType dtype) { return dtype_info(dtype).block_elements > 1 && dtype != DType::kF8_E4M3; }
// Rows of every other block type are whole blocks; here the last one may be cut short, and its codes past the row are zeros.
constexpr bool may_end_in_a_block(DType dtype) { return dtype == DType::kF8_E4M3; }

// Bytes of a row of so many elements.
constexpr std::uint64_t row_bytes(DType dtype, std::uint64_t elements) {
  const DTypeInfo info = dtype_info(dtype);
  return (elements + info.block_elements - 1) / info.block_elements * info.block_bytes;
}

}  // namespace llorch::engine::plan
