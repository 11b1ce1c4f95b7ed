#pragma once
// A job as clients of the Responses API see it. Pure.
#include <string>
#include <string_view>

#include "orchestratord/http/openai/envelope.h"
#include "orchestratord/http/openai/logprobs.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// With options.stream that API's events, from response.created to response.completed, .incomplete or .failed; else the response
// when it is whole, or the error with its status. One output item, a message with one text.
class ResponseRenderer final : public streams::Renderer {
 public:
  ResponseRenderer(const AnswerOptions& options, const AnswerIdentity& identity);

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
  void begin(std::string& out);
  void end_item(std::string& out);
  // An event of the response: its first members. The caller adds the others and "}\n\n".
  void open_event(std::string_view type, std::string& out);
  // The same for an event of the text.
  void open_text_event(std::string_view type, std::string& out);
  void append_part(std::string& out) const;
  void append_item(std::string_view status, std::string& out) const;
  struct Outcome {
    std::string_view status;
    const wire::EndEvent* end = nullptr;
    const wire::ErrorBody* error = nullptr;
  };
  void append_response(const Outcome& outcome, std::string& out) const;

  const AnswerOptions options_;
  const AnswerIdentity identity_;
  const std::string text_event_members_;
  LogprobsWriter new_logprobs_;  // of the token that is being written
  std::string text_;
  std::string logprobs_ = "[]";  // of all tokens
  std::int64_t sequence_number_ = 0;
  bool begun_ = false;
  Head head_;
};

}  // namespace llorch::orchestratord::http::openai
