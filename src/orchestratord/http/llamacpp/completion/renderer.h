#pragma once
// A job as clients of llama.cpp's /completion and /infill see it. Pure.
#include <cstdint>
#include <optional>
#include <string>

#include "orchestratord/http/chat/answer.h"
#include "orchestratord/http/llamacpp/completion/request.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::llamacpp {

// With options.stream events, the last one with "stop": true or an error; else one object when the job has ended, or the error with
// its status.
class CompletionRenderer final : public streams::Renderer {
 public:
  CompletionRenderer(CompletionOptions options, chat::AnswerIdentity identity);

  bool streams() const override { return options_.stream; }
  Head head() const override { return head_; }
  void queued(const wire::QueuedEvent& event, const streams::EventId& id, std::string& out) override;
  void started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) override;
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;
  void keep_alive(std::string& out) override;

 private:
  // The text, ids and log-probabilities that wait, as members of an answer.
  void append_output(std::string& out);
  std::string last_object(const wire::EndEvent& event);

  const CompletionOptions options_;
  const chat::AnswerIdentity identity_;
  std::string text_, tokens_, logprobs_;  // that no event has; tokens_, logprobs_: JSON, separated by commas
  std::int64_t tokens_out_ = 0;
  std::uint64_t seed_ = 0;
  bool has_new_line_ = false;
  std::optional<wire::QueuedEvent> wait_;  // until the job starts
  Head head_;
};

}  // namespace llorch::orchestratord::http::llamacpp
