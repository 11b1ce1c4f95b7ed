#pragma once
// Conversations and tools of the Anthropic API as chat templates take them. Pure.
#include <optional>

#include "base/result.h"
#include "wire/gateway.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::anthropic {

// Messages of one role in a row are one turn; `system` is a message before all. Blocks of text are one text, joined by line
// breaks; calls become `tool_calls`, their results messages of role tool, thoughts `reasoning_content`.
// Errors: INVALID_PARAMS with details {field, reason}.
base::Result<wire::JsonArray> template_messages(const wire::JsonArray& messages,
                                                const std::optional<wire::TextOrList>& system);

// Functions with their schema under `parameters`. Errors as above.
base::Result<std::optional<wire::JsonArray>> template_tools(const std::optional<wire::JsonArray>& tools);

}  // namespace llorch::orchestratord::http::anthropic
