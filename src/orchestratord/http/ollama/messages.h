#pragma once
// Conversations of the Ollama API as chat templates take them. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::ollama {

// Images stand before the text of their message. Calls have no ids there: they get some, and the results that follow them have
// these in the same order. Errors: INVALID_PARAMS with details {field, reason}.
base::Result<wire::JsonArray> template_messages(const wire::JsonArray& messages);

// One turn of a user, and the system message before it unless `system` is empty.
wire::JsonArray one_turn(std::string_view system, std::string_view prompt, const std::vector<std::string>& images);

}  // namespace llorch::orchestratord::http::ollama
