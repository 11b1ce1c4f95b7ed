#pragma once
// A grammar of outputs that call a tool, for requests that demand it.
#include <optional>
#include <string>

#include "base/result.h"
#include "text/formats/format.h"
#include "text/formats/tools.h"

namespace llorch::text::formats {

struct RequiredCall {
  std::optional<std::string> name;  // only this tool
  bool several = false;             // calls in one output, where the format has a way to write them
  enum class Thought {
    kNone,
    kMayPrecede,
    kIsOpen,  // prompt_opens_thought(): the output begins inside of one
  };
  Thought thought = Thought::kNone;
};

// GBNF, for the request's `grammar`. Every string of it parses, with the same format and tools, to calls whose arguments
// are valid under the tool's schema, and to nothing else but a thought. Of a keyword of JSON Schema whose support ends
// somewhere, the grammar's own compiler says so when it reads the text.
//
// INVALID_PARAMS with details {field, reason}: no such tool, no tools, a schema the format's notation cannot keep
// (`docs/guide/tool-calls.md`).
base::Result<std::string> required_call(Format format, const Tools& tools, const RequiredCall& requirement);

}  // namespace llorch::text::formats
