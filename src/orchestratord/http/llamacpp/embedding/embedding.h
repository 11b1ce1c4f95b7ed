#pragma once
// POST /embedding: its body as a submission, and the answer. Pure.
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "orchestratord/http/chat/answer.h"
#include "orchestratord/streams/renderer.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::llamacpp {

// `model` is set if the request names one. Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body, or as in
// /v2 where it has that bound.
base::Result<wire::SubmitRequest> decode_embedding(std::string_view body);

// [{"index":0,"embedding":[[...]]}, ...], the last one with the receipt as `llorch`, or the error with its status. Every token of the
// job is a vector (wire/embedding.h).
class EmbeddingRenderer final : public streams::WholeRenderer {
 public:
  explicit EmbeddingRenderer(chat::AnswerIdentity identity) : identity_(std::move(identity)) {}

  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;

 private:
  const chat::AnswerIdentity identity_;
  std::string vectors_;  // JSON objects, separated by commas
};

}  // namespace llorch::orchestratord::http::llamacpp
