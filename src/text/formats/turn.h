#pragma once
// The messages of a conversation with tool calls, as a chat template wants them.
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::text::formats {

// What a template asks of messages, told by its source. Clients send OpenAI's shape: `arguments` is a text, ids are of
// any length, an assistant that calls has no content.
struct Turn {
  bool arguments_are_objects = true;  // else they are texts: the template writes them as they stand
  bool ids_have_nine_characters = false;
  bool content_may_be_null = false;  // the template tells calls by it; else null becomes ""
  bool results_have_names = false;   // `name` of a tool's message, which clients leave out
  bool has_one_call = false;         // per message: several become as many messages, each before its result

  bool operator==(const Turn&) const = default;

  static Turn of(std::string_view chat_template_source);

  // `messages`: a JSON array of objects. Everything this does not name stays as it is.
  // INVALID_PARAMS with details {field, reason}: no array, or arguments that are no JSON object.
  base::Result<std::string> apply(std::string_view messages) const;
};

}  // namespace llorch::text::formats
