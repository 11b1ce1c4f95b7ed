#pragma once
// Messages of the OpenAI API as chat templates take them. Pure.
#include <optional>
#include <string>

#include "base/result.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::openai {

// The conversation with what templates trip over settled: role developer is system; members that are null, and what an answer
// holds besides content, reasoning and tool calls, are left out; content parts that are all text become one text, joined by
// line breaks; an assistant's missing content is empty. Errors: INVALID_PARAMS with details {field, reason}.
base::Result<wire::JsonArray> template_messages(const wire::JsonArray& messages);

}  // namespace llorch::orchestratord::http::openai
