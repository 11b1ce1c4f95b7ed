#pragma once
// A conversation to the tokens of a prompt: the model's chat template renders, its tokenizer encodes, and only the
// template's own text may spell control tokens (docs/internals/chat-templates.md).
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer.h"

namespace llorch::text {

// As a client sends them: JSON texts.
struct ChatInput {
  std::string messages;                        // array of objects, each with a string `role`; at least one
  std::optional<std::string> tools;            // array
  std::optional<std::string> documents;        // array
  std::optional<std::string> template_kwargs;  // object: more variables for the template
  bool add_generation_prompt = true;
  std::chrono::sys_seconds now{};  // what strftime_now shows
  TextBudget* budget = nullptr;    // as of EncodeOptions
  std::uint64_t* template_steps =
      nullptr;  // taken by this request's templates, which have those of one render; null: none
};

struct ChatPrompt {
  std::vector<TokenId> tokens;
  std::string text;  // what the template rendered, to hash; never to keep
};

// The template for requests with tools; the default one where the model has no other.
std::string_view template_for_tools(const TokenizerData& data);

// The chat templates of one model. Immutable after create; thread-safe.
class Chat {
 public:
  // Never fails: a template that cannot be used is refused when it is.
  explicit Chat(const TokenizerData& data);

  // Whether the model has a default template, be it one that can be used or not.
  bool has_template() const { return default_.has_value(); }
  // The default template as the model's file has it, well-formed UTF-8; empty: there is none that can be used.
  const std::string& template_text() const { return template_text_; }

  // A query and a document as a model that judges one by the other wants them told: by GGUF's template named rerank, or by the
  // default one if it shows messages of the roles query and document. Nullopt: no template tells them. Errors as prompt().
  // `budget`, `template_steps`: as of ChatInput.
  base::Result<std::optional<ChatPrompt>> pair_prompt(const Tokenizer& tokenizer, std::string_view query,
                                                      std::string_view document, std::chrono::sys_seconds now,
                                                      TextBudget* budget = nullptr,
                                                      std::uint64_t* template_steps = nullptr) const;

  // INVALID_PARAMS with details {field, reason}: malformed input, a model without a template, what the template refuses,
  // a limit. INVALID_PARAMS as Tokenizer::encode. CONFIG_KEY_INVALID: the model's template is none. Messages hold nothing of the input.
  base::Result<ChatPrompt> prompt(const Tokenizer& tokenizer, const ChatInput& input) const;

 private:
  using Parsed = std::optional<base::Result<jinja::ChatTemplate>>;
  Parsed default_, with_tools_;  // absent: the model has none
  std::string template_text_;
  std::string rerank_;  // empty: the model has none
  std::optional<std::string> bos_token_, eos_token_;
};

}  // namespace llorch::text
