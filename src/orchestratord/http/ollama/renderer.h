#pragma once
// A job as clients of the Ollama API see it. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/chat/answer.h"
#include "orchestratord/http/ollama/request.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::ollama {

// With options.stream lines of JSON, the last one with "done": true or an error; else one object when the job has ended, or the
// error with its status. All of them say when the job was admitted as `created_at`.
class AnswerRenderer final : public streams::Renderer {
 public:
  AnswerRenderer(const AnswerOptions& options, const chat::AnswerIdentity& identity);

  bool streams() const override { return options_.stream; }
  Head head() const override { return head_; }
  void queued(const wire::QueuedEvent&, const streams::EventId&, std::string&) override {}
  void started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) override;
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;
  void keep_alive(std::string&) override {}

 private:
  void take_parts(std::string& out);
  void add_call(const chat::Part& call);
  // The line of what came since the last one, if anything did; where nothing streams, it waits for the end.
  void append_line(std::string& out);
  // The text, thought, calls and log-probabilities that wait, as members of an answer.
  void append_output(std::string& out);

  const AnswerOptions options_;
  const chat::AnswerIdentity identity_;
  const std::string opening_;                      // of every object: {"model":...,"created_at":...
  std::optional<chat::OutputReader> reader_;       // absent: the output is text, all of it
  std::vector<chat::Part> parts_;                  // that the last token completed
  std::string text_, thought_, calls_, logprobs_;  // that no line has; calls_ and logprobs_: JSON, separated by commas
  std::int64_t queue_wait_ms_ = 0;
  Head head_;
};

// An answer without a job, to a request that asks the model nothing.
std::string empty_answer(const AnswerOptions& options, std::int64_t created_unix_s, std::string_view reason);

}  // namespace llorch::orchestratord::http::ollama
