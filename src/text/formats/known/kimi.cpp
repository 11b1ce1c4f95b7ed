#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kKimiSigns[] = {"<|tool_calls_section_begin|>"};
constexpr std::string_view kKimiClosers[] = {"<|tool_call_end|>", "<|tool_calls_section_end|>"};
constexpr std::string_view kKimiSilent[] = {"<|tool_calls_section_begin|>"};

// functions.NAME:NUMBER is the id, with the name in it.
std::optional<Head> read_kimi_head(std::string_view text) {
  constexpr std::string_view kFunctions = "functions.", kArguments = "<|tool_call_argument_begin|>";
  if (!text.starts_with(kFunctions) || !text.ends_with(kArguments)) return std::nullopt;
  text.remove_suffix(kArguments.size());
  std::string_view name = text.substr(kFunctions.size());
  const std::size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || !is_word(text)) return std::nullopt;
  name = name.substr(0, colon);
  return is_word(name) ? std::optional(Head{std::string(name), std::string(text)}) : std::nullopt;
}

constexpr CallSyntax kKimiCalls[] = {{.open = "<|tool_call_begin|>", .head = read_kimi_head, .takes_list = false}};

constexpr std::string_view kKimiInner[] = {"<|tool_call_argument_begin|>"};

}  // namespace

// Kimi K2. Ids count through the conversation.
const Syntax kKimiSyntax{
    .format = Format::kKimi,
    .name = "kimi",
    .signs = kKimiSigns,
    .thought = kThinkTags,
    .calls = kKimiCalls,
    .call_closers = kKimiClosers,
    .silent = kKimiSilent,
    .inner = kKimiInner,
    .spelling = {.list_open = "<|tool_calls_section_begin|>",
                 .open = "<|tool_call_begin|>functions.",
                 .behind_name = ":0<|tool_call_argument_begin|>",
                 .close = "<|tool_call_end|>",
                 .list_close = "<|tool_calls_section_end|>",
                 .allows_several = false},
};

}  // namespace llorch::text::formats
