#pragma once
// POST /rerank: its body as a submission, and the answer, as llama.cpp, Jina and Cohere have both. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/chat/answer.h"
#include "orchestratord/streams/renderer.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::llamacpp {

struct RerankOptions {
  std::string model;                     // as the client spelled it, or the only one there is
  std::optional<std::int64_t> top_n;     // of the results; nullopt: all
  std::vector<std::string> documents{};  // that the results hold; empty: they hold none
};
struct RerankCall {
  wire::SubmitRequest submission;  // `model` is set if the request names one
  RerankOptions answer;
};
// Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body.
base::Result<RerankCall> decode_rerank(std::string_view body);

// All results in one answer, the best first and of equals the earlier document, or the error with its status. Every token of the
// job is a score (wire/embedding.h).
class RerankRenderer final : public streams::WholeRenderer {
 public:
  RerankRenderer(RerankOptions options, chat::AnswerIdentity identity)
      : options_(std::move(options)), identity_(std::move(identity)) {}

  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;

 private:
  struct Score {
    double value;
    std::string text;
    std::int64_t index;
  };
  const RerankOptions options_;
  const chat::AnswerIdentity identity_;
  std::vector<Score> scores_;
};

}  // namespace llorch::orchestratord::http::llamacpp
