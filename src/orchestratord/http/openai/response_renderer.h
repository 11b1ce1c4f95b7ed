#pragma once
// A job as clients of the Responses API see it. Pure.
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/openai/envelope.h"
#include "orchestratord/http/openai/logprobs.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// With options.stream that API's events, from response.created to response.completed, .incomplete or .failed; else the response
// when it is whole, or the error with its status. The output is a row of items: messages with one text each, thoughts (type
// reasoning) and calls, in the order in which the model began them; at least one message or call. The events that close an item each
// repeat it, and the last one all of them: they are left for more(), and made of what is held once.
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
  bool more(std::string& out) override;
  std::size_t bytes_held() const override { return text_.capacity() + logprobs_.capacity() + items_.capacity(); }
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;
  void keep_alive(std::string& out) override;

  // The response before its end, with this status ("queued", "in_progress").
  std::string unfinished(std::string_view status) const;

 private:
  using Kind = chat::Part::Kind;  // of an item as well
  struct Range {                  // of items_
    std::size_t begin = 0, size = 0;
  };
  struct Piece {
    std::string text;
    Range behind{};
  };
  using LeftEvent = std::vector<Piece>;
  void begin(std::string& out);
  void take(const chat::Part& part, std::string& out);
  void open_item(Kind kind, std::string& out);
  void add_text(std::string_view text, std::string& out);
  std::string take_logprobs();
  void drop_logprobs();
  void close_item(std::string_view status);
  // Adds the open item to items_, whole.
  struct Closed {
    Range item, part, text, logprobs;
  };
  Closed add_open_item(std::string_view status);
  // Where what follows is to be written: `out`, or behind what is left.
  std::string& behind_left(std::string& out);
  void add_call(const chat::Part& call, std::string& out);
  // An event of the response: its first members. The caller adds the others and "}\n\n".
  void open_event(std::string_view type, std::string& out);
  // The same for an event of the open item, whose type is `prefix`, what the item holds, and `rest`.
  void open_text_event(std::string_view prefix, std::string_view rest, std::string& out);
  void open_item_event(std::string_view type, std::string& out);
  void item_event(std::string_view type, std::string_view item, std::string& out);
  std::string item_id() const;
  // Of the open item, or its part: up to the text, or what is in its place.
  std::string part_opening() const;
  std::string item_opening(std::string_view status) const;
  struct Outcome {
    std::string_view status;
    const wire::EndEvent* end = nullptr;
    const wire::ErrorBody* error = nullptr;
  };
  // The response, up to its output and behind it.
  void append_opening(const Outcome& outcome, std::string& out) const;
  void append_closing(const Outcome& outcome, std::string& out) const;
  // One without output.
  void append_response(const Outcome& outcome, std::string& out) const;

  const AnswerOptions options_;
  const AnswerIdentity identity_;
  std::optional<chat::OutputReader> reader_;  // absent: the output is content, all of it
  std::vector<chat::Part> parts_;             // that the last token completed
  LogprobsWriter new_logprobs_;               // of the tokens since the last text of a message
  std::optional<Kind> open_;                  // the item that is being written: kContent or kReasoning
  std::string text_;                          // of it
  std::string logprobs_ = "[]";               // of all tokens of it, if it is a message
  std::string items_;                         // that are whole: JSON, separated by commas
  std::deque<LeftEvent> left_;                // for more()
  std::int64_t items_count_ = 0;              // of these
  std::int64_t messages_count_ = 0;           // and of these with what is open
  std::int64_t sequence_number_ = 0;
  std::optional<wire::QueuedEvent> wait_;  // until the job starts
  bool begun_ = false;
  Head head_;
};

}  // namespace llorch::orchestratord::http::openai
