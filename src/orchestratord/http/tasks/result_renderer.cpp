#include "orchestratord/http/tasks/result_renderer.h"

#include "base/assert.h"
#include "net/http/error_response.h"
#include "orchestratord/http/chat/vector_text.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {

void ResultRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  if (result_.embeddings) {
    result_.embeddings->emplace_back(token.t);
    return;
  }
  if (result_.scores) {
    result_.scores->push_back(chat::score_of(token.t));
    return;
  }
  if (token.of_prompt) {
    auto logprobs = wire::decode<wire::PromptTokenLogprobs>(token.logprobs);
    ASSERT(logprobs);  // the relay encoded them
    if (!result_.prompt_logprobs) result_.prompt_logprobs.emplace();
    return result_.prompt_logprobs->push_back(*std::move(logprobs));
  }
  result_.text += token.t;
  if (token.logprobs.empty()) return;
  auto logprobs = wire::decode<wire::TokenLogprobs>(token.logprobs);
  ASSERT(logprobs);  // the relay encoded them
  if (!result_.logprobs) result_.logprobs.emplace();
  result_.logprobs->push_back(*std::move(logprobs));
}

void ResultRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  const std::string job_id = std::move(result_.job_id);
  static_cast<wire::EndEvent&>(result_) = event;
  result_.job_id = job_id;
  answer(net::http::json_response(200, wire::encode(result_)), out);
}

void ResultRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  answer(net::http::error_response(wire::to_error(error).with("job_id", result_.job_id),
                                   base::CorrelationId(error.correlation_id.value_or(""))),
         out);
}

}  // namespace llorch::orchestratord::http::tasks
