#pragma once
// What a client of a chat API wishes of the model's calls, whatever the API.
#include <optional>
#include <string>

namespace llorch::orchestratord::http::chat {

// The functions themselves stand in the request's `tools`.
struct ToolUse {
  bool required = false;                // the answer is a call
  std::optional<std::string> function;  // with `required`: of this function
  bool several = true;                  // one answer may hold more than one call

  bool operator==(const ToolUse&) const = default;
};

}  // namespace llorch::orchestratord::http::chat
