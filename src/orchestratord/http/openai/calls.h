#pragma once
// A request of the OpenAI API that makes an answer, whichever: decoded by its path, rendered as its path has it. Pure.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/openai/embeddings.h"
#include "orchestratord/http/openai/envelope.h"
#include "orchestratord/http/openai/request.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

struct Call {
  wire::SubmitRequest submission;
  std::optional<chat::ToolUse> tool_use{};  // absent: not of a chat
  std::variant<AnswerOptions, EmbeddingsOptions> answer;
  std::vector<wire::TextOrTokens> prompts{};  // Request::prompts

  // Null: the answer is an object of vectors.
  const AnswerOptions* text_answer() const { return std::get_if<AnswerOptions>(&answer); }
};

using DecodeCall = base::Result<Call> (*)(std::string_view body);
// Null: no call has this path ("/v1/chat/completions").
DecodeCall decoder_of(std::string_view path);

// `reading`, `tokens_in`: of tasks::Admission; the latter is told while the job runs.
std::shared_ptr<streams::Renderer> make_renderer(const Call& call, const AnswerIdentity& identity,
                                                 std::shared_ptr<const chat::Reading> reading,
                                                 std::int64_t tokens_in = 0);

}  // namespace llorch::orchestratord::http::openai
