#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kGraniteSigns[] = {"<|tool_call|>"};
constexpr CallSyntax kGraniteCalls[] = {{.open = "<|tool_call|>"}, {.open = "<tool_call>"}};
constexpr std::string_view kGraniteClosers[] = {"</tool_call>"};
constexpr std::string_view kGraniteSilent[] = {"<response>", "</response>"};

}  // namespace

// Granite 3. Version 4 is kHermes.
const Syntax kGraniteSyntax{
    .format = Format::kGranite,
    .name = "granite",
    .signs = kGraniteSigns,
    .thought = kThinkTags,
    .calls = kGraniteCalls,
    .call_closers = kGraniteClosers,
    .silent = kGraniteSilent,
    .spelling = {.list_open = "<|tool_call|>[",
                 .open = "{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .close = "}",
                 .separator = ", ",
                 .list_close = "]"},
};

}  // namespace llorch::text::formats
