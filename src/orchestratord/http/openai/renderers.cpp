#include "orchestratord/http/openai/renderers.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "orchestratord/http/openai/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

// {"id","type","function":{"name","arguments"}, without the closing brace.
void append_call_object(std::string_view before, const base::JobId& job_id, const chat::Part& call, std::string& out) {
  out.append(before)
      .append(R"("id":")")
      .append(chat::call_id("call_", job_id, call))
      .append(R"(","type":"function","function":{"name":)");
  base::append_json_string(out, call.name);
  out += R"(,"arguments":)";
  base::append_json_string(out, call.text);
  out += "}}";
}

// An answer that was cut is cut, also behind a call.
std::string_view finish_reason_with(std::size_t calls, wire::StopReason reason) {
  const std::string_view plain = finish_reason(reason);
  return calls > 0 && plain == "stop" ? "tool_calls" : plain;
}

// Adds the log-probabilities of a token of the prompt. Answers the text that the answer begins with as far as this token makes it whole,
// where the prompt's tokens say it; of the first token behind them the rest of it, bytes that are no whole character.
std::string take_echo(const streams::TokenView& token, const AnswerOptions& options, LogprobsWriter& logprobs,
                      text::Utf8Assembler& echo) {
  if (!token.of_prompt) return echo.finish();
  if (!options.echo_logprobs) return "";
  const std::string bytes = logprobs.add_prompt(token, options.echo);
  return options.echo.empty() ? echo.push(bytes) : "";
}

std::string chunk_opening(const AnswerOptions& options, const AnswerIdentity& identity) {
  return "data: " + opening(options, identity) + R"(,"choices":[)";
}

}  // namespace

void append_stream_end(std::string& out, const AnswerOptions& options, const AnswerIdentity& identity,
                       const wire::EndEvent& end) {
  if (options.include_usage) {
    out.append(chunk_opening(options, identity)).append(R"(],"usage":)");
    append_usage(out, end);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

ChunkRenderer::ChunkRenderer(const AnswerOptions& options, const AnswerIdentity& identity)
    : options_(options),
      identity_(identity),
      opening_(chunk_opening(options, identity) + fmt::format(R"({{"index":{})", options.index)),
      logprobs_(options.endpoint) {
  if (options.reading) reader_.emplace(options.reading);
}

streams::Renderer::Head ChunkRenderer::head() const {
  return {.status = 200, .headers = with_request_id(net::http::sse_headers(), identity_.correlation_id)};
}

void ChunkRenderer::queued(const wire::QueuedEvent& event, const streams::EventId&, std::string&) { wait_ = event; }

void ChunkRenderer::started(const wire::StartedEvent&, const streams::EventId&, std::string& out) {
  wait_.reset();
  begin(out);
}

// The role, or the text of the prompt.
void ChunkRenderer::begin(std::string& out) {
  if (begun_) return;
  begun_ = true;
  if (options_.endpoint == Endpoint::kChat) {
    out += opening_;
    out += R"(,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null)";
    finish_chunk(out);
  } else if (!options_.echo.empty()) {
    append_text(options_.echo, out);
  }
}

// Of a chunk whose choice goes on.
void ChunkRenderer::finish_chunk(std::string& out) {
  out += R"(,"finish_reason":null}])";
  append_usage_so_far({.tokens_in = options_.tokens_in, .tokens_out = tokens_out_}, out);
  out += "}\n\n";
}

void ChunkRenderer::append_usage_so_far(const wire::EndEvent& so_far, std::string& out) const {
  if (!options_.continuous_usage) return;
  out += R"(,"usage":)";
  append_usage(out, so_far);
}

void ChunkRenderer::append_text(std::string_view text, std::string& out) {
  const bool chat = options_.endpoint == Endpoint::kChat;
  out += opening_;
  out += chat ? R"(,"delta":{"content":)" : R"(,"text":)";
  base::append_json_string(out, text);
  out += chat ? R"(},"logprobs":)" : R"(,"logprobs":)";
  logprobs_.write(out);
  finish_chunk(out);
}

void ChunkRenderer::append_thought(std::string_view text, std::string& out) {
  out.append(opening_).append(R"(,"delta":{"reasoning_content":)");
  base::append_json_string(out, text);
  out += R"(},"logprobs":null)";
  finish_chunk(out);
}

void ChunkRenderer::append_call(const chat::Part& call, std::string& out) {
  out.append(opening_).append(R"(,"delta":{"tool_calls":[)");
  append_call_object(fmt::format(R"({{"index":{},)", call.index), identity_.job_id, call, out);
  out += R"(]},"logprobs":null)";
  finish_chunk(out);
}

void ChunkRenderer::append_parts(std::string& out) {
  bool has_text = false;
  for (const chat::Part& part : parts_) {
    switch (part.kind) {
      case chat::Part::Kind::kContent: append_text(part.text, out), has_text = true; break;
      case chat::Part::Kind::kReasoning: append_thought(part.text, out); break;
      case chat::Part::Kind::kCall: append_call(part, out); break;
    }
  }
  parts_.clear();
  if (!has_text && options_.logprobs) append_text("", out);
}

void ChunkRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  begin(out);
  const std::string echoed = take_echo(token, options_, logprobs_, echo_);
  if (token.of_prompt || !echoed.empty()) append_text(echoed, out);
  if (token.of_prompt || options_.hides_output) return;
  ++tokens_out_;
  if (options_.logprobs) logprobs_.add(token);
  if (reader_) {
    reader_->take(token, parts_);
    return append_parts(out);
  }
  if (!token.t.empty() || options_.logprobs) append_text(token.t, out);
}

void ChunkRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  begin(out);
  if (reader_) {
    reader_->finish(parts_);
    if (!parts_.empty()) append_parts(out);
  }
  out += opening_;
  out += options_.endpoint == Endpoint::kChat ? R"(,"delta":{})" : R"(,"text":"")";
  const std::size_t calls = reader_ ? reader_->calls() : 0;
  const wire::EndEvent told = told_end(options_, event);
  out.append(R"(,"logprobs":null,"finish_reason":")");
  out.append(finish_reason_with(calls, told.stop_reason)).append(R"("}])");
  append_usage_so_far(told, out);
  append_provenance(out, event);
  out += "}\n\n";
  if (options_.choices == 1) append_stream_end(out, options_, identity_, told);
}

void ChunkRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  out += "data: ";
  append_error(out, error);
  out += "\n\n";
}

void ChunkRenderer::keep_alive(std::string& out) { chat::append_keep_alive(out, wait_); }

BodyRenderer::BodyRenderer(const AnswerOptions& options, const AnswerIdentity& identity)
    : options_(options),
      identity_(identity),
      opening_(opening(options, identity)),
      logprobs_(options.endpoint, options.top_logprobs_max),
      text_(options.echo) {
  if (options.prompt_logprobs) prompt_logprobs_.emplace(*options.prompt_logprobs);
  if (options.reading) reader_.emplace(options.reading);
}

void BodyRenderer::take_parts() {
  for (const chat::Part& part : parts_) {
    switch (part.kind) {
      case chat::Part::Kind::kContent: text_ += part.text; break;
      case chat::Part::Kind::kReasoning: thought_ += part.text; break;
      case chat::Part::Kind::kCall:
        append_call_object(calls_.empty() ? "{" : ",{", identity_.job_id, part, calls_);
        break;
    }
  }
  parts_.clear();
}

void BodyRenderer::append_prompt_logprobs(std::string& out) const {
  if (!prompt_logprobs_) return;
  out += R"(,"prompt_logprobs":)";
  prompt_logprobs_->write(out);
}

void BodyRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string&) {
  if (token.of_prompt && prompt_logprobs_) prompt_logprobs_->add(token);
  text_ += take_echo(token, options_, logprobs_, echo_);
  if (token.of_prompt || options_.hides_output) return;
  if (options_.logprobs) logprobs_.add(token);
  if (!reader_) {
    text_ += token.t;
    return;
  }
  reader_->take(token, parts_);
  take_parts();
}

void BodyRenderer::append_choice(const wire::EndEvent& event, std::string& out) {
  const bool chat = options_.endpoint == Endpoint::kChat;
  out += fmt::format(R"({{"index":{})", options_.index);
  out += chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)";
  if (text_.empty() && !calls_.empty()) {
    out += "null";
  } else {
    base::append_json_string(out, text_);
  }
  if (!thought_.empty()) {
    out += R"(,"reasoning_content":)";
    base::append_json_string(out, thought_);
  }
  if (chat) out += R"(,"refusal":null)";
  if (!calls_.empty()) out.append(R"(,"tool_calls":[)").append(calls_).append("]");
  out += chat ? R"(},"logprobs":)" : R"(,"logprobs":)";
  logprobs_.write(out);
  const std::size_t calls = reader_ ? reader_->calls() : 0;
  out.append(R"(,"finish_reason":")")
      .append(finish_reason_with(calls, told_end(options_, event).stop_reason))
      .append("\"");
  if (!chat) append_prompt_logprobs(out);
}

void BodyRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  std::string body;
  if (reader_) {
    reader_->finish(parts_);
    take_parts();
  }
  if (options_.choices == 1) {
    body.append(opening_).append(R"(,"choices":[)");
    append_choice(event, body);
    body += R"(}],"usage":)";
    append_usage(body, told_end(options_, event));
    if (options_.endpoint == Endpoint::kChat) append_prompt_logprobs(body);
    append_provenance(body, event);
  } else {
    append_choice(event, body);
    body.append(R"(,"llorch":)").append(wire::encode(event));
  }
  body += '}';
  answer({.status = 200,
          .headers = with_request_id({{"Content-Type", "application/json"}}, identity_.correlation_id),
          .body = std::move(body)},
         out);
}

void BodyRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  answer(error_response(wire::to_error(error), identity_.correlation_id), out);
}

}  // namespace llorch::orchestratord::http::openai
