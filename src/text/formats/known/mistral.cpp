#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr ThoughtSyntax kMistralThought{"[THINK]", "[/THINK]"};
constexpr std::string_view kMistralSigns[] = {"[TOOL_CALLS]"};
constexpr std::string_view kMistralV11Signs[] = {"[TOOL_CALLS]", "[ARGS]"};

// NAME[ARGS] or NAME[CALL_ID]ID[ARGS].
std::optional<Head> read_mistral_head(std::string_view text) {
  constexpr std::string_view kId = "[CALL_ID]", kArguments = "[ARGS]";
  if (!text.ends_with(kArguments)) return std::nullopt;
  text.remove_suffix(kArguments.size());
  Head head;
  const std::size_t id = text.find(kId);
  head.name = text.substr(0, id);
  if (id != std::string_view::npos) {
    head.id = text.substr(id + kId.size());
    if (!is_word(head.id)) return std::nullopt;
  }
  return is_word(head.name) ? std::optional(std::move(head)) : std::nullopt;
}

constexpr CallSyntax kMistralCalls[] = {{.open = "[TOOL_CALLS]", .head = read_mistral_head, .has_id = true}};

constexpr std::string_view kMistralInner[] = {"[CALL_ID]", "[ARGS]"};

}  // namespace

// Tokenizers up to v7: the id, nine letters or digits, stands in the object.
const Syntax kMistralSyntax{
    .format = Format::kMistral,
    .name = "mistral",
    .signs = kMistralSigns,
    .thought = kMistralThought,
    .calls = kMistralCalls,
    .inner = kMistralInner,
    .spelling = {.list_open = "[TOOL_CALLS][",
                 .open = "{\"name\": \"",
                 .behind_name = "\", \"arguments\": ",
                 .close = "}",
                 .separator = ", ",
                 .list_close = "]"},
};

// Tokenizers from v11 on.
const Syntax kMistralV11Syntax{
    .format = Format::kMistralV11,
    .name = "mistral_v11",
    .signs = kMistralV11Signs,
    .thought = kMistralThought,
    .calls = kMistralCalls,
    .inner = kMistralInner,
    .spelling = {.open = "[TOOL_CALLS]", .behind_name = "[ARGS]"},
};

}  // namespace llorch::text::formats
