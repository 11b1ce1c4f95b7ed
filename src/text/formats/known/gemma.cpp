#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kGemma3Signs[] = {"<start_of_turn>"};
constexpr CallSyntax kGemma3Calls[] = {{.open = "```tool_code\n", .body = Body::kPythonic, .close = "```"}};

constexpr std::string_view kFunctionGemmaSigns[] = {"<start_function_call>"};
constexpr CallSyntax kFunctionGemmaCalls[] = {
    {.open = "<start_function_call>", .body = Body::kBraces, .close = "<end_function_call>", .quote = "<escape>"}};

constexpr std::string_view kGemma4Signs[] = {"<|tool_call>"};
constexpr CallSyntax kGemma4Calls[] = {
    {.open = "<|tool_call>", .body = Body::kBraces, .close = "<tool_call|>", .quote = "<|\"|>"}};

}  // namespace

// Gemma 3 knows tools from its prompt only.
const Syntax kGemma3Syntax{
    .format = Format::kGemma3,
    .name = "gemma3",
    .signs = kGemma3Signs,
    .calls = kGemma3Calls,
    .spelling = {.list_open = "```tool_code\n",
                 .behind_name = "(",
                 .close = ")",
                 .list_close = "\n```",
                 .arguments = Body::kPythonic,
                 .allows_several = false},
};

const Syntax kFunctionGemmaSyntax{
    .format = Format::kFunctionGemma,
    .name = "functiongemma",
    .signs = kFunctionGemmaSigns,
    .calls = kFunctionGemmaCalls,
    .spelling = {.open = "<start_function_call>call:", .close = "<end_function_call>", .arguments = Body::kBraces},
};

const Syntax kGemma4Syntax{
    .format = Format::kGemma4,
    .name = "gemma4",
    .signs = kGemma4Signs,
    .thought = {"<|channel>thought", "<channel|>"},
    .calls = kGemma4Calls,
    .spelling = {.open = "<|tool_call>call:", .close = "<tool_call|>", .arguments = Body::kBraces},
};

}  // namespace llorch::text::formats
