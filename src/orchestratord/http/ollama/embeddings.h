#pragma once
// POST /api/embed and /api/embeddings: their bodies as submissions, and the answers. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/chat/answer.h"
#include "orchestratord/streams/renderer.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::ollama {

enum class EmbeddingsShape : std::uint8_t {
  kAll,  // /api/embed: a vector per input, and counts
  kOne,  // /api/embeddings: one vector and nothing else
};
struct EmbeddingsOptions {
  EmbeddingsShape shape = EmbeddingsShape::kAll;
  std::string model;                       // as the client spelled it
  std::vector<std::int64_t> cut_inputs{};  // tasks::Admission::cut_inputs
};
struct EmbeddingsCall {
  wire::SubmitRequest submission;
  EmbeddingsOptions answer;
  bool cuts_long_inputs = false;
  bool only_finds_model = false;  // there is no input; `submission` has the model's name alone
};
// Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body, or as in /v2 where it has that bound.
base::Result<EmbeddingsCall> decode_embed(std::string_view body);
base::Result<EmbeddingsCall> decode_embeddings(std::string_view body);

// All vectors in one answer, or the error with its status. Every token of the job is a vector (wire/embedding.h).
class EmbeddingsRenderer final : public streams::WholeRenderer {
 public:
  EmbeddingsRenderer(EmbeddingsOptions options, chat::AnswerIdentity identity)
      : options_(std::move(options)), identity_(std::move(identity)) {}

  void started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) override;
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;

 private:
  const EmbeddingsOptions options_;
  const chat::AnswerIdentity identity_;
  std::string vectors_;  // JSON arrays, separated by commas
  std::int64_t queue_wait_ms_ = 0;
};

// An answer without a job, to a request without an input.
std::string empty_embeddings(const EmbeddingsOptions& options);

}  // namespace llorch::orchestratord::http::ollama
