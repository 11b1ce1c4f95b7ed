#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kLlama3Signs[] = {"<|python_tag|>", "\"parameters\""};
constexpr std::string_view kLlama3Closers[] = {";"};
constexpr CallSyntax kLlama3Calls[] = {{.open = "{", .is_bare = true}, {.open = "<|python_tag|>"}};

}  // namespace

// Llama 3.1 to 3.3. A tag with Python behind it is code for an interpreter and no call: content.
const Syntax kLlama3Syntax{
    .format = Format::kLlama3,
    .name = "llama3",
    .signs = kLlama3Signs,
    .calls = kLlama3Calls,
    .call_closers = kLlama3Closers,
    .spelling = {.open = "{\"name\": \"", .behind_name = "\", \"parameters\": ", .close = "}", .separator = "; "},
};

}  // namespace llorch::text::formats
