#pragma once
// A job as clients of the Anthropic API see it. Pure.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/anthropic/request.h"
#include "orchestratord/http/chat/answer.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::anthropic {

// With options.stream that API's events, from message_start to message_stop, or to error; else the message when it is whole,
// or the error with its status. Its content are blocks of text, thoughts and calls in the order in which the model began them.
class MessageRenderer final : public streams::Renderer {
 public:
  MessageRenderer(const AnswerOptions& options, const chat::AnswerIdentity& identity);

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
  using Kind = chat::Part::Kind;
  void begin(std::string& out);
  void take_parts(std::string& out);
  void add_text(Kind kind, std::string_view text, std::string& out);
  void add_call(const chat::Part& call, std::string& out);
  // The open block has all its text.
  void close_block(std::string& out);
  // An event of the block that is written: its first members. The caller adds the others and "}\n\n".
  void open_block_event(std::string_view type, std::string& out) const;
  // {"id", ... "model", without a closing brace.
  void append_opening(std::string& out) const;
  // "stop_reason":...,"stop_sequence":...
  void append_stop(const wire::EndEvent& event, std::string& out) const;

  const AnswerOptions options_;
  const chat::AnswerIdentity identity_;
  std::optional<chat::OutputReader> reader_;  // absent: the output is text, all of it
  std::vector<chat::Part> parts_;             // that the last token completed
  std::optional<Kind> open_;                  // the block that is written: kContent or kReasoning
  std::string text_;                          // of it, unless it is streamed
  std::string blocks_;                        // that are whole, unless they are streamed: JSON, separated by commas
  std::size_t blocks_count_ = 0;              // that are whole
  std::optional<wire::QueuedEvent> wait_;     // until the job starts
  bool begun_ = false;
  Head head_;
};

}  // namespace llorch::orchestratord::http::anthropic
