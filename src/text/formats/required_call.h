#pragma once
// A grammar of outputs that call a tool, for requests that demand it, or that call one or answer in JSON.
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/token_id.h"
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
  // A JSON Schema: a text that is valid under it may stand instead of the calls. Then nobody has demanded a call, and where the notation
  // cannot keep a tool's schema, the arguments are any that it can write ("loose"); so are those of the tools in `loose`.
  std::optional<std::string> answer{};
  std::set<std::string, std::less<>> loose{};
  std::size_t text_bytes_max = 1 << 20;  // of the grammar, as its compiler has it
};

// A control token of the model and how it is spelled: one of markers(format).
using Marker = std::pair<base::TokenId, std::string>;
using Markers = std::span<const Marker>;

// GBNF, for the request's `grammar`. Where the format writes one of `markers`, the grammar takes that token and nothing
// else, as the model would write it. Every string of the grammar parses, with the same format and tools, to calls whose
// arguments are valid under the tool's schema, and to nothing else but a thought; or to the `answer` as content. Arguments of `loose` calls may
// break the schema, and may name one member of an object twice, which no grammar excludes: such a text parses to content. Of a keyword of
// JSON Schema whose support ends somewhere, the grammar's own compiler says so when it reads the text.
//
// INVALID_PARAMS with details {field, reason}: no such tool, no tools, a schema the format's notation cannot keep
// (`docs/guide/tool-calls.md`), a grammar that would be longer than `text_bytes_max`.
base::Result<std::string> required_call(Format format, const Tools& tools, const RequiredCall& requirement,
                                        Markers markers = {});

}  // namespace llorch::text::formats
