#include "text/jinja/chat_template.h"

#include <fmt/format.h>

#include "base/error_detail.h"
#include "base/utf8.h"
#include "text/jinja/refusal.h"
#include "text/jinja/run/runtime.h"
#include "text/jinja/syntax/parser.h"

namespace llorch::text::jinja {

std::string RenderedText::text() const {
  std::string all;
  for (const TextRun& run : runs) all += run.text;
  return all;
}

base::Result<ChatTemplate> ChatTemplate::parse(std::string_view text) {
  if (text.size() > kTemplateBytesMax)
    return base::fail(base::ErrorCode::kConfigKeyInvalid,
                      fmt::format("chat template: {} bytes, at most {} are read", text.size(), kTemplateBytesMax));
  if (!base::is_valid_utf8(text))
    return base::fail(base::ErrorCode::kConfigKeyInvalid, "chat template: it is no UTF-8 text");
  return ChatTemplate(TRY(parse_template(text)));
}

base::Result<RenderedText> ChatTemplate::render(const RenderInput& input) const {
  // Order matters: what is made last goes first.
  Budget budget(input.limits, input.steps != nullptr ? *input.steps : 0);
  Heap heap(budget);
  Runtime run(heap, input);
  auto rendered = run.render(*program_);
  if (input.steps != nullptr) *input.steps = budget.steps();
  return rendered;
}

bool is_refusal(const base::Error& error) { return base::has_detail(error, kRefusal); }

}  // namespace llorch::text::jinja
