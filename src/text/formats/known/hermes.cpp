#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kHermesSigns[] = {"<tool_call>"};
constexpr std::string_view kHermesClosers[] = {"</tool_call>"};
constexpr CallSyntax kHermesCalls[] = {{.open = "<tool_call>"}};

}  // namespace

// Hermes, Qwen 2.5 and 3, Granite 4, SmolLM 3.
const Syntax kHermesSyntax{
    .format = Format::kHermes,
    .name = "hermes",
    .signs = kHermesSigns,
    .thought = kThinkTags,
    .calls = kHermesCalls,
    .call_closers = kHermesClosers,
    .spelling = {.open = "<tool_call>\n{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .close = "}\n</tool_call>",
                 .separator = "\n"},
};

}  // namespace llorch::text::formats
