#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kLfm2Signs[] = {"<|tool_list_start|>"};
constexpr CallSyntax kLfm2Calls[] = {
    {.open = "<|tool_call_start|>", .body = Body::kPythonic, .close = "<|tool_call_end|>"}};

}  // namespace

const Syntax kLfm2Syntax{
    .format = Format::kLfm2,
    .name = "lfm2",
    .signs = kLfm2Signs,
    .thought = kThinkTags,
    .calls = kLfm2Calls,
    .spelling = {.list_open = "<|tool_call_start|>[",
                 .behind_name = "(",
                 .close = ")",
                 .separator = ", ",
                 .list_close = "]<|tool_call_end|>",
                 .arguments = Body::kPythonic},
};

}  // namespace llorch::text::formats
