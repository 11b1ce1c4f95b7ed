#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kCommandSigns[] = {"<|START_ACTION|>"};
constexpr CallSyntax kCommandCalls[] = {{.open = "<|START_ACTION|>", .has_id = true}};
constexpr std::string_view kCommandClosers[] = {"<|END_ACTION|>"};
constexpr std::string_view kCommandSilent[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                                               "<|END_TEXT|>"};

}  // namespace

// Command R7B and A. The id is the number of the call.
const Syntax kCommandSyntax{
    .format = Format::kCommand,
    .name = "command",
    .signs = kCommandSigns,
    .thought = {"<|START_THINKING|>", "<|END_THINKING|>"},
    .calls = kCommandCalls,
    .call_closers = kCommandClosers,
    .silent = kCommandSilent,
    .spelling = {.list_open = "<|START_ACTION|>[\n    ",
                 .open = "{\"tool_call_id\": \"0\", \"tool_name\": \"",
                 .behind_name = "\", \"parameters\": ",
                 .close = "}",
                 .list_close = "\n]<|END_ACTION|>",
                 .allows_several = false},
};

}  // namespace llorch::text::formats
