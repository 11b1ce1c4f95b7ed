#include "orchestratord/http/ollama/embeddings.h"

#include <fmt/format.h>

#include <utility>

#include "base/append.h"
#include "base/join.h"
#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/vector_text.h"
#include "orchestratord/http/ollama/errors.h"
#include "wire/json.h"
#include "wire/ollama.h"

namespace llorch::orchestratord::http::ollama {
namespace {

constexpr std::int64_t kNanosecondsPerMs = 1'000'000;

wire::SubmitRequest embedding_of(const std::string& model) {
  wire::SubmitRequest out;
  out.model = model;
  out.workload = wire::Workload::kEmbedding;
  return out;
}

}  // namespace

base::Result<EmbeddingsCall> decode_embed(std::string_view text) {
  TRY(chat::check_utf8(text));
  auto body = TRY(wire::decode<wire::OllamaEmbedRequest>(text, wire::UnknownKeys::kIgnore));
  EmbeddingsCall call{.submission = embedding_of(body.model),
                      .answer = {.model = body.model},
                      .cuts_long_inputs = body.truncate.value_or(true)};
  call.only_finds_model = !body.input || !body.input->inputs;
  if (call.only_finds_model) return call;
  call.submission.input = std::move(body.input->inputs);
  call.submission.dimensions = body.dimensions;
  TRY(chat::check_as_task(call.submission));
  return call;
}

base::Result<EmbeddingsCall> decode_embeddings(std::string_view text) {
  TRY(chat::check_utf8(text));
  auto body = TRY(wire::decode<wire::OllamaEmbeddingsRequest>(text, wire::UnknownKeys::kIgnore));
  EmbeddingsCall call{.submission = embedding_of(body.model),
                      .answer = {.shape = EmbeddingsShape::kOne, .model = body.model},
                      .cuts_long_inputs = true};
  call.only_finds_model = body.prompt.value_or("").empty();
  if (call.only_finds_model) return call;
  call.submission.input = wire::EmbeddingInputs{.inputs = {{.text = *std::move(body.prompt), .tokens = {}}}};
  TRY(chat::check_as_task(call.submission));
  return call;
}

void EmbeddingsRenderer::started(const wire::StartedEvent& event, const streams::EventId&, std::string&) {
  queue_wait_ms_ = event.queue_wait_ms.value_or(0);
}

void EmbeddingsRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  vectors_ += vectors_.empty() ? "[" : ",[";
  chat::append_numbers(vectors_, token.t);
  vectors_ += ']';
}

void EmbeddingsRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  std::string body;
  if (options_.shape == EmbeddingsShape::kOne) {
    body.append(R"({"embedding":)").append(vectors_);
  } else {
    body += R"({"model":)";
    base::append_json_string(body, options_.model);
    body.append(R"(,"embeddings":[)").append(vectors_).append("]");
    base::append(body, R"(,"total_duration":{},"load_duration":{},"prompt_eval_count":{})",
                 (queue_wait_ms_ + event.first_token_ms + event.decode_time_ms) * kNanosecondsPerMs,
                 queue_wait_ms_ * kNanosecondsPerMs, event.tokens_in);
  }
  std::string provenance = wire::encode(event);
  if (!options_.cut_inputs.empty()) {
    provenance.pop_back();
    base::append(provenance, R"(,"cut_inputs":[{}]}})", base::join(options_.cut_inputs, ","));
  }
  body.append(R"(,"llorch":)").append(provenance).append("}");
  answer(net::http::json_response(200, std::move(body)), out);
}

void EmbeddingsRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  answer(error_response(wire::to_error(error), identity_.correlation_id), out);
}

std::string empty_embeddings(const EmbeddingsOptions& options) {
  if (options.shape == EmbeddingsShape::kOne) return R"({"embedding":[]})";
  std::string out = R"({"model":)";
  base::append_json_string(out, options.model);
  return out + R"(,"embeddings":[]})";
}

}  // namespace llorch::orchestratord::http::ollama
