#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kQwen3CoderSigns[] = {"<function=", "<parameter="};
constexpr std::string_view kQwen3CoderClosers[] = {"</tool_call>"};
// Qwen3-Coder sometimes leaves the outer tag out.
constexpr CallSyntax kQwen3CoderCalls[] = {
    {.open = "<tool_call>", .body = Body::kXml, .close = "</function>"},
    {.open = "<function=", .body = Body::kXml, .close = "</function>"},
};

}  // namespace

const Syntax kQwen3CoderSyntax{
    .format = Format::kQwen3Coder,
    .name = "qwen3_coder",
    .signs = kQwen3CoderSigns,
    .thought = kThinkTags,
    .calls = kQwen3CoderCalls,
    .call_closers = kQwen3CoderClosers,
    .spelling = {.open = "<tool_call>\n<function=",
                 .behind_name = ">\n",
                 .close = "</function>\n</tool_call>",
                 .separator = "\n",
                 .arguments = Body::kXml},
};

}  // namespace llorch::text::formats
