#pragma once
// Tensor types by their number in GGUF files.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/contract/dtype.h"

namespace llorch::engine::io {

struct GgufTensorType {
  std::uint32_t id;
  std::string_view name;
  std::optional<contract::DType> dtype;  // absent: known to the format, not to this engine
};

inline constexpr auto kGgufTensorTypes = std::to_array<GgufTensorType>({
    {0, "F32", contract::DType::kF32},
    {1, "F16", contract::DType::kF16},
    {2, "Q4_0", contract::DType::kQ4_0},
    {3, "Q4_1", contract::DType::kQ4_1},
    {6, "Q5_0", contract::DType::kQ5_0},
    {7, "Q5_1", contract::DType::kQ5_1},
    {8, "Q8_0", contract::DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", contract::DType::kQ2_K},
    {11, "Q3_K", contract::DType::kQ3_K},
    {12, "Q4_K", contract::DType::kQ4_K},
    {13, "Q5_K", contract::DType::kQ5_K},
    {14, "Q6_K", contract::DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", contract::DType::kIQ4_NL},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", contract::DType::kIQ4_XS},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", contract::DType::kI32},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", contract::DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", contract::DType::kMXFP4},
});

// nullptr when the format has no such number.
constexpr const GgufTensorType* gguf_tensor_type(std::uint32_t id) {
  const auto at = std::find_if(kGgufTensorTypes.begin(), kGgufTensorTypes.end(),
                               [&](const GgufTensorType& type) { return type.id == id; });
  return at == kGgufTensorTypes.end() ? nullptr : &*at;
}

// REQUIRES: the format has the type, which is every one but F8_E4M3.
constexpr std::uint32_t gguf_tensor_type_id(contract::DType dtype) {
  return std::find_if(kGgufTensorTypes.begin(), kGgufTensorTypes.end(),
                      [&](const GgufTensorType& type) { return type.dtype == dtype; })
      ->id;
}

}  // namespace llorch::engine::io
