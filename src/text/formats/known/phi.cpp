#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kPhiSigns[] = {"<|tool|>", "<|/tool|>"};
constexpr std::string_view kPhiClosers[] = {"<|/tool_call|>"};
constexpr CallSyntax kPhiCalls[] = {{.open = "<|tool_call|>"}};

}  // namespace

// Phi-4-mini. Its template spells only the markers of the tools it is given.
const Syntax kPhiSyntax{
    .format = Format::kPhi,
    .name = "phi",
    .signs = kPhiSigns,
    .thought = kThinkTags,
    .calls = kPhiCalls,
    .call_closers = kPhiClosers,
    .spelling = {.list_open = "<|tool_call|>[",
                 .open = "{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .close = "}",
                 .separator = ", ",
                 .list_close = "]<|/tool_call|>"},
};

}  // namespace llorch::text::formats
