#pragma once
// Tensor types by their number in GGUF files.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/plan/dtype.h"

namespace llorch::engine::io {

struct GgufTensorType {
  std::uint32_t id;
  std::string_view name;
  std::optional<plan::DType> dtype;  // absent: known to the format, not to this engine
};

inline constexpr auto kGgufTensorTypes = std::to_array<GgufTensorType>({
    {0, "F32", plan::DType::kF32},
    {1, "F16", plan::DType::kF16},
    {2, "Q4_0", plan::DType::kQ4_0},
    {3, "Q4_1", plan::DType::kQ4_1},
    {6, "Q5_0", plan::DType::kQ5_0},
    {7, "Q5_1", plan::DType::kQ5_1},
    {8, "Q8_0", plan::DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", plan::DType::kQ2_K},
    {11, "Q3_K", plan::DType::kQ3_K},
    {12, "Q4_K", plan::DType::kQ4_K},
    {13, "Q5_K", plan::DType::kQ5_K},
    {14, "Q6_K", plan::DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", plan::DType::kIQ4_NL},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", plan::DType::kIQ4_XS},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", plan::DType::kI32},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", plan::DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", plan::DType::kMXFP4},
});

// nullptr when the format has no such number.
constexpr const GgufTensorType* gguf_tensor_type(std::uint32_t id) {
  const auto at = std::find_if(kGgufTensorTypes.begin(), kGgufTensorTypes.end(),
                               [&](const GgufTensorType& type) { return type.id == id; });
  return at == kGgufTensorTypes.end() ? nullptr : &*at;
}

// REQUIRES: the format has the type, which is every one but F8_E4M3.
constexpr std::uint32_t gguf_tensor_type_id(plan::DType dtype) {
  return std::find_if(kGgufTensorTypes.begin(), kGgufTensorTypes.end(),
                      [&](const GgufTensorType& type) { return type.dtype == dtype; })
      ->id;
}

}  // namespace llorch::engine::io
