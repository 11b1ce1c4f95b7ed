#include "engine/io/file_tensor.h"

#include <fmt/format.h>
#include "base/join.h"

namespace llorch::engine::io {

std::optional<plan::DType> dtype_of(StoredType type) {
  if (static_cast<std::size_t>(type) >= plan::kDTypesCount) return {};
  return static_cast<plan::DType>(type);
}

plan::DTypeInfo stored_type_info(StoredType type) {
  switch (type) {
    case StoredType::kF8_E4M3: return {"F8_E4M3", 1, 1};
    case StoredType::kF8_E5M2: return {"F8_E5M2", 1, 1};
    case StoredType::kF8_E8M0: return {"F8_E8M0", 1, 1};
    case StoredType::kF64: return {"F64", 1, 8};
    case StoredType::kBool: return {"BOOL", 1, 1};
    case StoredType::kI8: return {"I8", 1, 1};
    case StoredType::kU8: return {"U8", 1, 1};
    case StoredType::kI16: return {"I16", 1, 2};
    case StoredType::kU16: return {"U16", 1, 2};
    case StoredType::kU32: return {"U32", 1, 4};
    case StoredType::kI64: return {"I64", 1, 8};
    case StoredType::kU64: return {"U64", 1, 8};
    default: return plan::dtype_info(static_cast<plan::DType>(type));
  }
}

std::uint64_t FileTensor::elements_count() const {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : shape()) count *= dim;
  return count;
}

std::string describe(const FileTensor& tensor) {
  return fmt::format("{} [{}]", stored_type_info(tensor.type).name, base::join(tensor.shape(), ", "));
}

}  // namespace llorch::engine::io
