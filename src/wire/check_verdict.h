#pragma once
// What a daemon's --check says of its configuration, a line of JSON: {"valid":true} or {"error":{...}}.
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::wire {

std::string encode_verdict(const base::Result<>& checked);
// Absent: the line is no verdict.
std::optional<base::Result<>> decode_verdict(std::string_view line);

}  // namespace llorch::wire
