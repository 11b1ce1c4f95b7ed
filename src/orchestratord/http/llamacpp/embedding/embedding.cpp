#include "orchestratord/http/llamacpp/embedding/embedding.h"

#include <fmt/format.h>

#include <utility>

#include "base/append.h"
#include "base/assert.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/vector_text.h"
#include "orchestratord/http/llamacpp/errors.h"
#include "wire/json.h"
#include "wire/llamacpp.h"

namespace llorch::orchestratord::http::llamacpp {

base::Result<wire::SubmitRequest> decode_embedding(std::string_view body) {
  TRY(chat::check_utf8(body));
  auto read = TRY(wire::decode<wire::LlamaCppEmbeddingRequest>(body, wire::UnknownKeys::kIgnore));
  wire::SubmitRequest out;
  out.workload = wire::Workload::kEmbedding;
  out.input = std::move(read.input ? read.input : read.content);
  out.model = std::move(read.model);
  TRY(chat::check_as_task(out));
  return out;
}

void EmbeddingRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  if (!vectors_.empty()) vectors_ += ',';
  base::append(vectors_, R"({{"index":{},"embedding":[[)", token.i);
  chat::append_numbers(vectors_, token.t);
  vectors_ += "]]}";
}

void EmbeddingRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  ASSERT(vectors_.ends_with('}'), "a job of embeddings has an input");
  vectors_.pop_back();
  answer(net::http::json_response(200, "[" + vectors_ + R"(,"llorch":)" + wire::encode(event) + "}]"), out);
}

void EmbeddingRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  answer(error_response(wire::to_error(error), identity_.correlation_id), out);
}

}  // namespace llorch::orchestratord::http::llamacpp
