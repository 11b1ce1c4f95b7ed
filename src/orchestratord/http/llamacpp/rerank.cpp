#include "orchestratord/http/llamacpp/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/append.h"
#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/vector_text.h"
#include "orchestratord/http/llamacpp/errors.h"
#include "wire/json.h"
#include "wire/llamacpp.h"

namespace llorch::orchestratord::http::llamacpp {

base::Result<RerankCall> decode_rerank(std::string_view body) {
  TRY(chat::check_utf8(body));
  auto read = TRY(wire::decode<wire::RerankRequest>(body, wire::UnknownKeys::kIgnore));
  RerankCall call;
  call.answer.top_n = read.top_n;
  wire::SubmitRequest& out = call.submission;
  out.workload = wire::Workload::kRerank;
  out.query = std::move(read.query);
  out.input.emplace();
  for (wire::RerankDocument& document : read.documents) {
    if (read.return_documents.value_or(false)) call.answer.documents.push_back(document.text);
    out.input->inputs.push_back({.text = std::move(document.text), .tokens = {}});
  }
  if (out.input->inputs.empty()) return chat::refused("documents", "length", "documents is empty; send at least one");
  out.model = std::move(read.model);
  TRY(chat::check_as_task(out));
  return call;
}

void RerankRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  scores_.push_back({.value = chat::score_of(token.t), .text = std::string(token.t), .index = token.i});
}

void RerankRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  std::string body;
  std::ranges::stable_sort(scores_, std::greater(), &Score::value);
  const auto wanted = static_cast<std::size_t>(options_.top_n.value_or(event.tokens_out));
  scores_.resize(std::min(scores_.size(), wanted));
  body += R"({"model":)";
  base::append_json_string(body, options_.model);
  body += R"(,"object":"list","results":[)";
  for (const Score& score : scores_) {
    if (&score != scores_.data()) body += ',';
    base::append(body, R"({{"index":{},"relevance_score":{})", score.index, score.text);
    if (!options_.documents.empty()) {
      body += R"(,"document":{"text":)";
      base::append_json_string(body, options_.documents[static_cast<std::size_t>(score.index)]);
      body += '}';
    }
    body += '}';
  }
  base::append(body, R"(],"usage":{{"prompt_tokens":{0},"total_tokens":{0}}},"llorch":)", event.tokens_in);
  body.append(wire::encode(event)).append("}");
  answer(net::http::json_response(200, std::move(body)), out);
}

void RerankRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  answer(error_response(wire::to_error(error), identity_.correlation_id), out);
}

}  // namespace llorch::orchestratord::http::llamacpp
