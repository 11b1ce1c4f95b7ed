#pragma once
// Operating failures as values. A bug is an ASSERT, never an Error.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error_code.h"

namespace llorch::base {

// A number or word that belongs to an error: required_bytes, gpu_id, reason, ...
using DetailValue = std::variant<std::int64_t, std::string>;

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  // What was wrong with which input, the limit it broke, and what to do next. Never a prompt, an output, a secret.
  std::string message;
  std::vector<std::pair<std::string, DetailValue>> details;

  Error with(std::string key, std::int64_t value) &&;
  Error with(std::string key, std::string value) &&;
  std::string_view name() const { return info(code).name; }
};

}  // namespace llorch::base
