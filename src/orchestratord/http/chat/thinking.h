#pragma once
// Whether and how hard a model is to think, as chat templates are told. Pure.
#include <optional>
#include <string_view>

#include "wire/task.h"

namespace llorch::orchestratord::http::chat {

// What templates know: gpt-oss low, medium and high; Qwen 3 and others whether to think at all.
struct Thinking {
  std::optional<bool> enabled;  // the variable enable_thinking; absent: as the template has it
  std::string_view effort;      // the variable reasoning_effort; empty: as the template has it
};

// `kwargs` with these variables; one that is there already stays as it is. Absent: no variables at all.
std::optional<wire::JsonObject> with_thinking(const std::optional<wire::JsonObject>& kwargs, const Thinking& thinking);

}  // namespace llorch::orchestratord::http::chat
