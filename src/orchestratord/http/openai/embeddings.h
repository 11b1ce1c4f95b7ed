#pragma once
// /v1/embeddings: its body as a submission, and the answer. Pure.
#include <string>
#include <string_view>

#include "base/result.h"
#include "orchestratord/http/openai/envelope.h"
#include "orchestratord/streams/renderer.h"
#include "wire/openai.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::openai {

struct EmbeddingsOptions {
  std::string model;  // as the client spelled it
  wire::EmbeddingEncoding encoding = wire::EmbeddingEncoding::kFloat;
};
struct EmbeddingsCall {
  wire::SubmitRequest submission;
  EmbeddingsOptions answer;
};
// Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body.
base::Result<EmbeddingsCall> decode_embeddings(std::string_view body);

// All vectors in one answer, or the error with its status. Every token of the job is a vector (wire/embedding.h).
class EmbeddingsRenderer final : public streams::WholeRenderer {
 public:
  EmbeddingsRenderer(EmbeddingsOptions options, AnswerIdentity identity)
      : options_(std::move(options)), identity_(std::move(identity)) {}

  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;

 private:
  const EmbeddingsOptions options_;
  const AnswerIdentity identity_;
  std::string data_;  // JSON objects, separated by commas
};

}  // namespace llorch::orchestratord::http::openai
