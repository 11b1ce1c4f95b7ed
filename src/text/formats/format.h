#pragma once
// How models mark tool calls and thoughts in their output. One format per way of writing, not per model.
//
// Markers are often control tokens, and control tokens add nothing to a text (`Tokenizer::token_bytes`). A job whose
// output is parsed must ask for them: for each token of the vocabulary whose spelling is one of markers(format), the
// caller renders that spelling in place of nothing, and leaves every other control token silent. Tokens that end a
// generation stay silent; no format needs them.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace llorch::text::formats {

enum class Format : std::uint8_t {
  kGeneric,        // {"name": ..., "arguments": {...}} and nothing else
  kHermes,         // <tool_call>{...}</tool_call>
  kQwen3Coder,     // <tool_call><function=f><parameter=p>...</parameter></function></tool_call>
  kLlama3,         // {"name": ..., "parameters": {...}}, or the same behind <|python_tag|>
  kMistral,        // [TOOL_CALLS][{...}, {...}]
  kMistralV11,     // [TOOL_CALLS]f[ARGS]{...}
  kGptOss,         // channels; calls are messages to functions.f
  kDeepseek,       // R1, V3: function, separator, name, arguments in a json block
  kDeepseekV31,    // name, separator, arguments
  kGranite,        // <|tool_call|>[{...}]
  kLfm2,           // <|tool_call_start|>[f(a=1)]<|tool_call_end|>
  kPhi,            // <|tool_call|>[{...}]<|/tool_call|>
  kGemma3,         // a tool_code block with f(a=1)
  kFunctionGemma,  // <start_function_call>call:f{a:1}<end_function_call>
  kGemma4,         // <|tool_call>call:f{a:1}<tool_call|>
  kCommand,        // <|START_ACTION|>[{...}]<|END_ACTION|>
  kKimi,           // <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}<|tool_call_end|>
};

// In the order of the enumeration.
std::span<const Format> all_formats();

// As users write it: "hermes", "mistral_v11", ...
std::string_view name_of(Format format);
std::optional<Format> parse_format(std::string_view name);

// The format a chat template teaches, by the markers it spells; kGeneric for one that spells none of them.
Format detect(std::string_view chat_template_source);

// A template that spells all of them teaches the format; none of kGeneric.
std::span<const std::string_view> signs(Format format);

// Every spelling that the format's parser looks for and a vocabulary may hold as one control token. Static storage.
std::vector<std::string_view> markers(Format format);

// Whether the format has a way to mark thoughts.
bool knows_thoughts(Format format);

// What ends a thought; empty: the format knows none.
std::string_view thought_end(Format format);

// Whether the output continues a thought that the prompt's template has opened: `prompt` ends with the marker that opens
// one, and white space.
bool prompt_opens_thought(Format format, std::string_view prompt);

}  // namespace llorch::text::formats
