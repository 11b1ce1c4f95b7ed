#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kDeepseekSigns[] = {"<｜tool▁call▁begin｜>", "```json"};
constexpr std::string_view kDeepseekV31Signs[] = {"<｜tool▁call▁begin｜>"};
constexpr std::string_view kDeepseekClosers[] = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"};
constexpr std::string_view kDeepseekSilent[] = {"<｜tool▁calls▁begin｜>"};
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";

// NAME<sep>, or `function<sep>NAME` and the first line of a block of code.
std::optional<Head> read_deepseek_head(std::string_view text) {
  const std::size_t separator = text.find(kSeparator);
  if (separator == std::string_view::npos) return std::nullopt;
  std::string_view name = text.substr(0, separator), behind = text.substr(separator + kSeparator.size());
  if (const std::size_t block = behind.find("\n```json"); block != std::string_view::npos) {
    name = behind.substr(0, block);
    behind = behind.substr(block + 8);
  }
  if (behind.find_first_not_of(" \n") != std::string_view::npos || !is_word(name)) return std::nullopt;
  return Head{std::string(name), {}};
}

constexpr CallSyntax kDeepseekCalls[] = {
    {.open = "<｜tool▁call▁begin｜>", .head = read_deepseek_head, .takes_list = false}};

constexpr std::string_view kDeepseekInner[] = {kSeparator};

}  // namespace

const Syntax kDeepseekSyntax{
    .format = Format::kDeepseek,
    .name = "deepseek",
    .signs = kDeepseekSigns,
    .thought = kThinkTags,
    .calls = kDeepseekCalls,
    .call_closers = kDeepseekClosers,
    .silent = kDeepseekSilent,
    .inner = kDeepseekInner,
    .spelling = {.list_open = "<｜tool▁calls▁begin｜>",
                 .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                 .behind_name = "\n```json\n",
                 .close = "\n```<｜tool▁call▁end｜>",
                 .separator = "\n",
                 .list_close = "<｜tool▁calls▁end｜>"},
};

const Syntax kDeepseekV31Syntax{
    .format = Format::kDeepseekV31,
    .name = "deepseek_v31",
    .signs = kDeepseekV31Signs,
    .thought = kThinkTags,
    .calls = kDeepseekCalls,
    .call_closers = kDeepseekClosers,
    .silent = kDeepseekSilent,
    .inner = kDeepseekInner,
    .spelling = {.list_open = "<｜tool▁calls▁begin｜>",
                 .open = "<｜tool▁call▁begin｜>",
                 .behind_name = kSeparator,
                 .close = "<｜tool▁call▁end｜>",
                 .list_close = "<｜tool▁calls▁end｜>"},
};

}  // namespace llorch::text::formats
