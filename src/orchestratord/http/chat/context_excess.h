#pragma once
// What clients must know of a job that its context has no room for: each API has a sentence of its own that programs look for. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "wire/task.h"

namespace llorch::orchestratord::http::chat {

struct ContextExcess {
  std::int64_t context_tokens = 0;
  std::optional<std::int64_t> prompt_tokens{};  // absent: the error does not tell
  std::optional<std::int64_t> max_tokens{};     // that the output was to have beside them
};

// Absent: `error` is another one, or tells no numbers.
inline std::optional<ContextExcess> context_excess(const wire::ErrorBody& error) {
  bool is_excess = false;
  std::optional<std::int64_t> context;
  ContextExcess out;
  for (const auto& [name, value] : error.details) {
    const auto* text = std::get_if<std::string>(&value);
    const auto* number = std::get_if<std::int64_t>(&value);
    if (text != nullptr && name == "reason") is_excess = *text == "CONTEXT_TOO_LARGE";
    if (number == nullptr) continue;
    if (name == "context_tokens") context = *number;
    if (name == "tokens_in" || name == "prompt_tokens") out.prompt_tokens = *number;
    if (name == "max_tokens") out.max_tokens = *number;
  }
  if (!is_excess || !context) return std::nullopt;
  out.context_tokens = *context;
  return out;
}

}  // namespace llorch::orchestratord::http::chat
