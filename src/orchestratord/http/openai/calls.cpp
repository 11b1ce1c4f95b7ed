#include "orchestratord/http/openai/calls.h"

#include <utility>

#include "orchestratord/http/openai/renderers.h"
#include "orchestratord/http/openai/response_renderer.h"

namespace llorch::orchestratord::http::openai {
namespace {

template <base::Result<Request> (*Decode)(std::string_view)>
base::Result<Call> text_call(std::string_view body) {
  Request request = TRY(Decode(body));
  return Call{std::move(request.submission), std::move(request.tool_use), std::move(request.answer),
              std::move(request.prompts)};
}

base::Result<Call> embeddings_call(std::string_view body) {
  EmbeddingsCall call = TRY(decode_embeddings(body));
  return Call{std::move(call.submission), std::nullopt, std::move(call.answer)};
}

}  // namespace

DecodeCall decoder_of(std::string_view path) {
  if (path == "/v1/chat/completions") return text_call<decode_chat>;
  if (path == "/v1/completions") return text_call<decode_completion>;
  if (path == "/v1/responses") return text_call<decode_response>;
  if (path == "/v1/embeddings") return embeddings_call;
  return nullptr;
}

std::shared_ptr<streams::Renderer> make_renderer(const Call& call, const AnswerIdentity& identity,
                                                 std::shared_ptr<const chat::Reading> reading, std::int64_t tokens_in) {
  if (const auto* vectors = std::get_if<EmbeddingsOptions>(&call.answer)) {
    return std::make_shared<EmbeddingsRenderer>(*vectors, identity);
  }
  AnswerOptions options = std::get<AnswerOptions>(call.answer);
  options.reading = std::move(reading);
  options.tokens_in = tokens_in;
  if (options.endpoint == Endpoint::kResponses) return std::make_shared<ResponseRenderer>(options, identity);
  if (options.stream) return std::make_shared<ChunkRenderer>(options, identity);
  return std::make_shared<BodyRenderer>(options, identity);
}

}  // namespace llorch::orchestratord::http::openai
