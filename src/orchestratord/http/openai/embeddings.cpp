#include "orchestratord/http/openai/embeddings.h"

#include <fmt/format.h>

#include <utility>

#include "base/append.h"
#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/vector_text.h"
#include "orchestratord/http/openai/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {

base::Result<EmbeddingsCall> decode_embeddings(std::string_view body) {
  TRY(chat::check_utf8(body));
  auto request = TRY(wire::decode<wire::EmbeddingsRequest>(body, wire::UnknownKeys::kRefuse));
  EmbeddingsCall call;
  call.submission.model = request.model;
  call.submission.workload = wire::Workload::kEmbedding;
  call.submission.input = std::move(request.input);
  call.submission.dimensions = request.dimensions;
  call.answer = {.model = std::move(request.model),
                 .encoding = request.encoding_format.value_or(wire::EmbeddingEncoding::kFloat)};
  TRY(wire::validate_submission(call.submission));
  return call;
}

void EmbeddingsRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  if (!data_.empty()) data_ += ',';
  base::append(data_, R"({{"object":"embedding","index":{},"embedding":)", token.i);
  if (options_.encoding == wire::EmbeddingEncoding::kBase64) {
    data_.append("\"").append(token.t).append("\"}");
  } else {
    data_ += '[';
    chat::append_numbers(data_, token.t);
    data_ += "]}";
  }
}

void EmbeddingsRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  std::string body;
  body.append(R"({"object":"list","data":[)").append(data_).append(R"(],"model":)");
  base::append_json_string(body, options_.model);
  base::append(body, R"(,"usage":{{"prompt_tokens":{0},"total_tokens":{0}}})", event.tokens_in);
  append_provenance(body, event);
  body += '}';
  answer({.status = 200,
          .headers = with_request_id({{"Content-Type", "application/json"}}, identity_.correlation_id),
          .body = std::move(body)},
         out);
}

void EmbeddingsRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  answer(error_response(wire::to_error(error), identity_.correlation_id), out);
}

}  // namespace llorch::orchestratord::http::openai
