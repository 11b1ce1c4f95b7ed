#include "base/error_code.h"

#include "base/assert.h"

namespace llorch::base {

const ErrorInfo& info(ErrorCode code) {
  for (const ErrorInfo& row : kErrorTable) {
    if (row.code == code) return row;
  }
  ASSERT(false, "no table row for error code {}", static_cast<int>(code));
}

std::optional<ErrorCode> error_code_from_name(std::string_view wire_name) {
  for (const ErrorInfo& row : kErrorTable) {
    if (row.name == wire_name) return row.code;
  }
  return std::nullopt;
}

}  // namespace llorch::base
