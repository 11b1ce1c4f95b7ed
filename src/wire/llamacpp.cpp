#include "wire/llamacpp.h"

#include "wire/field.h"
#include "wire/json_text_fields.h"

namespace llorch::wire {

namespace {
constexpr std::string_view kModel = "As in /v2/tasks. Omitted: the one that is configured.";
constexpr Bounds kModelBytes{1, 512};
}  // namespace

template <>
struct Table<TokenizeRequest> {
  using S = TokenizeRequest;
  static constexpr auto fields = std::tuple{
      optional("model", &S::model, kModel, kModelBytes), required("content", &S::content, "The text.", {0, 4 << 20}),
      optional("add_special", &S::add_special, "Tokens around the text, where the model wants them."),
      optional("parse_special", &S::parse_special, "Spelled control tokens are tokens."),
      optional("with_pieces", &S::with_pieces, "The text of each token as well.")};
};
template <>
struct Table<DetokenizeRequest> {
  using S = DetokenizeRequest;
  static constexpr auto fields = std::tuple{optional("model", &S::model, kModel, kModelBytes),
                                            required("tokens", &S::tokens, "Ids of its vocabulary.", {0, 1 << 20})};
};
template <>
struct Table<ApplyTemplateRequest> {
  using S = ApplyTemplateRequest;
  static constexpr auto fields = std::tuple{
      optional("model", &S::model, kModel, kModelBytes),
      required("messages", &S::messages, "Conversation, for the model's chat template.", {0, 4 << 20}),
      optional("tools", &S::tools, "Functions the model may call.", {0, 4 << 20}),
      optional("chat_template_kwargs", &S::chat_template_kwargs, "More variables for the template.", {0, 1 << 16}),
      optional("add_generation_prompt", &S::add_generation_prompt, "Whether an answer begins at the end.")};
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(TokenizeRequest)
LLORCH_INSTANTIATE_WIRE(DetokenizeRequest)
LLORCH_INSTANTIATE_WIRE(ApplyTemplateRequest)
