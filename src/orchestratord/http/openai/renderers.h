#pragma once
// A job as clients of the OpenAI API see it: a stream of chunks, or one body when it has ended. Pure.
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/http/openai/envelope.h"
#include "orchestratord/http/openai/logprobs.h"
#include "orchestratord/streams/renderer.h"
#include "text/text_stream.h"

namespace llorch::orchestratord::http::openai {

// Appends what follows the last choice of a stream: the chunk of counts if the request wants it, and [DONE].
void append_stream_end(std::string& out, const AnswerOptions& options, const AnswerIdentity& identity,
                       const wire::EndEvent& end);

// Lines of `data:` alone: chunks, then [DONE]; after an error, as after a lost connection, no [DONE]. While the job waits, the
// comments that keep the stream alive say for what.
class ChunkRenderer final : public streams::Renderer {
 public:
  ChunkRenderer(const AnswerOptions& options, const AnswerIdentity& identity);

  bool streams() const override { return true; }
  Head head() const override;
  void queued(const wire::QueuedEvent& event, const streams::EventId& id, std::string& out) override;
  void started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) override;
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;
  void keep_alive(std::string& out) override;

 private:
  void begin(std::string& out);
  void finish_chunk(std::string& out);
  void append_usage_so_far(const wire::EndEvent& so_far, std::string& out) const;
  void append_text(std::string_view text, std::string& out);
  void append_thought(std::string_view text, std::string& out);
  void append_call(const chat::Part& call, std::string& out);
  void append_parts(std::string& out);

  const AnswerOptions options_;
  const AnswerIdentity identity_;
  const std::string opening_;  // of every chunk, from "data: " to its choice's index
  LogprobsWriter logprobs_;
  std::optional<chat::OutputReader> reader_;  // absent: the output is content, all of it
  std::vector<chat::Part> parts_;             // that the last token completed
  text::Utf8Assembler echo_;                  // of the prompt's tokens, where they are its text
  std::optional<wire::QueuedEvent> wait_;     // until the job starts
  std::int64_t tokens_out_ = 0;               // told so far
  bool begun_ = false;
};

// The whole answer, or of several choices this one, an object with its job's event `end` as `llorch`; or the error with its status.
class BodyRenderer final : public streams::WholeRenderer {
 public:
  BodyRenderer(const AnswerOptions& options, const AnswerIdentity& identity);

  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;

 private:
  void take_parts();
  void append_prompt_logprobs(std::string& out) const;
  // Up to the finish_reason, without the closing brace.
  void append_choice(const wire::EndEvent& event, std::string& out);

  const AnswerOptions options_;
  const AnswerIdentity identity_;
  const std::string opening_;
  LogprobsWriter logprobs_;
  std::optional<PromptLogprobsWriter> prompt_logprobs_;
  std::optional<chat::OutputReader> reader_;  // absent: the output is content, all of it
  std::vector<chat::Part> parts_;             // that the last token completed
  text::Utf8Assembler echo_;                  // of the prompt's tokens, where they are its text
  std::string text_, thought_;
  std::string calls_;  // JSON, separated by commas
};

}  // namespace llorch::orchestratord::http::openai
