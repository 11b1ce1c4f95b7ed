#pragma once
// A tensor as it lies in a file of either format.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/io/stored_file.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::io {

// What files hold: every plan::DType under its own number, then types that only files have.
enum class StoredType : std::uint8_t {
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
  kF8_E4M3 = 64,  // finite values and NaN only, no infinities
  kF8_E5M2 = 65,
  kF8_E8M0 = 66,  // a power of two: 2^(byte - 127)
  kF64 = 67,
  kBool = 68,
  kI8 = 69,
  kU8 = 70,
  kI16 = 71,
  kU16 = 72,
  kU32 = 73,
  kI64 = 74,
  kU64 = 75,
};

constexpr StoredType stored_type(plan::DType dtype) { return static_cast<StoredType>(dtype); }
// The engine's own type of the same layout; absent for types that only files have.
std::optional<plan::DType> dtype_of(StoredType type);
// Names of file-only types are spelled as safetensors does.
plan::DTypeInfo stored_type_info(StoredType type);

inline constexpr std::uint32_t kFileRankMax = 8;

struct FileTensor {
  std::string_view name;
  StoredType type = StoredType::kF32;
  std::uint32_t rank = 0;                          // 0 (one element) to kFileRankMax
  std::array<std::uint64_t, kFileRankMax> dims{};  // row-major: dims[rank - 1] is contiguous; 0 past the rank
  FileRange data;                                  // exactly the tensor's bytes, at any alignment

  std::span<const std::uint64_t> shape() const { return std::span(dims).first(rank); }
  // Does not overflow: every reader checked it.
  std::uint64_t elements_count() const;
};

// "BF16 [151936, 1024]", for messages.
std::string describe(const FileTensor& tensor);

}  // namespace llorch::engine::io
