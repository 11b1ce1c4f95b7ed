#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kGptOssSigns[] = {"<|channel|>", "<|message|>"};
constexpr std::string_view kGptOssSilent[] = {"<|end|>", "<|return|>", "<|call|>"};
// The prompt ends within a header, so a recipient may be the first word of the output.
constexpr CallSyntax kGptOssCalls[] = {
    {.open = "<|channel|>", .body = Body::kChannel},
    {.open = "<|start|>", .body = Body::kChannel},
    {.open = "to=", .body = Body::kChannel, .is_bare = true},
};

constexpr std::string_view kGptOssInner[] = {"<|constrain|>", "<|message|>"};

}  // namespace

// Analysis is a thought, a message to functions.f is a call, everything else is content.
const Syntax kGptOssSyntax{
    .format = Format::kGptOss,
    .name = "gpt_oss",
    .signs = kGptOssSigns,
    .thought = {.close = "<|end|>"},
    .calls = kGptOssCalls,
    .silent = kGptOssSilent,
    .inner = kGptOssInner,
    .has_channels = true,
    .spelling = {.open = "<|channel|>commentary to=functions.",
                 .behind_name = " <|constrain|>json<|message|>",
                 .allows_several = false,
                 .thought_open = "<|channel|>analysis<|message|>",
                 .behind_thought = "<|start|>assistant",
                 .answer_open = "<|channel|>final<|message|>"},
};

}  // namespace llorch::text::formats
