#pragma once
// Chat templates: the Jinja2 programs that models bring along, from messages to the text of a prompt.
// Renders what Jinja2 3.1 renders with trim_blocks and lstrip_blocks, byte for byte, or refuses (docs/internals/chat-templates.md).
#include <boost/json/object.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/text_run.h"

namespace llorch::text::jinja {

using Origin = TextOrigin;

// What a template rendered, cut wherever the origin changes: no run is empty, neighbours differ in origin.
// Every byte that came out of the caller's data is kData, whatever the template did to it; a character that a filter
// made of a data character is kData too.
struct RenderedText {
  std::vector<TextRun> runs;

  std::string text() const;
};

// What a template may use up; past any of them render is INVALID_PARAMS with the limit's name and number.
struct RenderLimits {
  std::uint64_t steps_max = 5'000'000;  // evaluated nodes, loop turns, 64-byte pieces of text worked on (a search: 32)
  std::size_t output_bytes_max = 16u << 20;
  std::size_t memory_bytes_max = 256u << 20;  // text and containers, all that is alive
  int depth_max = 250;                        // nested calls, statements and values
};

inline constexpr std::size_t kTemplateBytesMax = 1u << 20;
inline constexpr int kTemplateNestingMax = 80;  // statements and expressions inside each other

struct RenderInput {
  // messages, tools, documents, add_generation_prompt and whatever else the template knows. All strings are kData.
  boost::json::object variables;
  std::optional<std::string> bos_token, eos_token;  // kTemplate; absent: not defined
  std::chrono::sys_seconds now{};                   // what strftime_now shows, UTC
  RenderLimits limits;
  std::uint64_t* steps = nullptr;  // taken by renders of this request, which share the limit; null: none
};

struct Program;

// A parsed template. Immutable: any number of threads may render it at once. Cheap to copy (shared).
class ChatTemplate {
 public:
  // CONFIG_KEY_INVALID with the line: text that is no template, or uses what is not supported; longer than
  // kTemplateBytesMax; nested deeper than kTemplateNestingMax; too many names in too many branches.
  static base::Result<ChatTemplate> parse(std::string_view text);

  // INVALID_PARAMS: the template refuses the messages (raise_exception), does what Jinja2 would stop at, or passes a
  // limit. Messages name the template's line and the template's own words, never a caller's text.
  base::Result<RenderedText> render(const RenderInput& input) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace llorch::text::jinja
