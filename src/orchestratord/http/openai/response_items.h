#pragma once
// Items and tools of the Responses API as messages and tools of a chat. Pure.
#include <boost/json/fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/openai.h"

namespace llorch::orchestratord::http::openai {

// A text is a user's message; `instructions` are a system message before all. Calls and their results become `tool_calls` and
// messages of role tool; reasoning is left out. Errors: INVALID_PARAMS with details {field, reason}; `field` is what the
// request calls the input.
base::Result<wire::JsonArray> chat_messages(const wire::TextOrList& input,
                                            const std::optional<std::string>& instructions,
                                            std::string_view field = "input");

// Whether the model is not told of this tool: a search of the web.
bool is_left_out(const boost::json::value& tool);
// Functions with their members under `function`. Errors as above.
base::Result<std::optional<wire::JsonArray>> chat_tools(const std::optional<wire::JsonArray>& tools);

}  // namespace llorch::orchestratord::http::openai
