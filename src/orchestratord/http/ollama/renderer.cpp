#include "orchestratord/http/ollama/renderer.h"

#include <fmt/format.h>

#include <utility>

#include "base/append.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "orchestratord/http/ollama/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::ollama {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;

std::string opening_of(const AnswerOptions& options, std::int64_t created_unix_s) {
  std::string out = R"({"model":)";
  base::append_json_string(out, options.model);
  return out.append(R"(,"created_at":")").append(base::rfc3339(created_unix_s * 1000)).append("\"");
}

void append_timings(std::string& out, const wire::EndEvent& end, std::int64_t queue_wait_ms) {
  base::append(out,
               R"(,"total_duration":{},"load_duration":{},"prompt_eval_count":{},"prompt_eval_duration":{},)"
               R"("eval_count":{},"eval_duration":{})",
               (queue_wait_ms + end.first_token_ms + end.decode_time_ms) * kNsPerMs, queue_wait_ms * kNsPerMs,
               end.tokens_in, end.first_token_ms * kNsPerMs, end.tokens_out, end.decode_time_ms * kNsPerMs);
}

std::string_view done_reason(wire::StopReason reason) {
  const bool cut = reason == wire::StopReason::kMaxTokens || reason == wire::StopReason::kContext;
  return cut ? "length" : "stop";
}

}  // namespace

AnswerRenderer::AnswerRenderer(const AnswerOptions& options, const chat::AnswerIdentity& identity)
    : options_(options), identity_(identity), opening_(opening_of(options, identity.created_unix_s)) {
  if (options.reading) reader_.emplace(options.reading);
  head_.headers = net::http::json_response(200, "").headers;
  if (options.stream) head_.headers.set("Content-Type", "application/x-ndjson");
}

void AnswerRenderer::started(const wire::StartedEvent& event, const streams::EventId&, std::string&) {
  queue_wait_ms_ = event.queue_wait_ms.value_or(0);
}

void AnswerRenderer::append_output(std::string& out) {
  const bool chat = options_.endpoint == Endpoint::kChat;
  out += chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"response":)";
  base::append_json_string(out, text_);
  if (!thought_.empty()) {
    out += R"(,"thinking":)";
    base::append_json_string(out, thought_);
  }
  if (chat) {
    if (!calls_.empty()) out.append(R"(,"tool_calls":[)").append(calls_).append("]");
    out += '}';
  }
  if (!logprobs_.empty()) out.append(R"(,"logprobs":[)").append(logprobs_).append("]");
  for (std::string* part : {&text_, &thought_, &calls_, &logprobs_}) part->clear();
}

void AnswerRenderer::append_line(std::string& out) {
  const bool is_empty = text_.empty() && thought_.empty() && calls_.empty() && logprobs_.empty();
  if (!options_.stream || is_empty) return;
  out += opening_;
  append_output(out);
  out += ",\"done\":false}\n";
}

void AnswerRenderer::add_call(const chat::Part& call) {
  const std::string id = chat::call_id("call_", identity_.job_id, call);
  base::append(calls_, R"({}{{"id":"{}","function":{{"index":{},"name":)", calls_.empty() ? "" : ",", id, call.index);
  base::append_json_string(calls_, call.name);
  calls_.append(R"(,"arguments":)").append(call.text).append("}}");
}

void AnswerRenderer::take_parts(std::string& out) {
  for (const chat::Part& part : parts_) {
    switch (part.kind) {
      case chat::Part::Kind::kContent: text_ += part.text; break;
      case chat::Part::Kind::kReasoning: thought_ += part.text; break;
      case chat::Part::Kind::kCall: add_call(part); break;
    }
  }
  parts_.clear();
  append_line(out);
}

void AnswerRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  if (!token.logprobs.empty()) logprobs_.append(logprobs_.empty() ? "" : ",").append(token.logprobs);
  if (reader_) {
    reader_->take(token, parts_);
    return take_parts(out);
  }
  text_ += token.t;
  append_line(out);
}

void AnswerRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  if (reader_) {
    reader_->finish(parts_);
    take_parts(out);
  }
  out += opening_;
  append_output(out);
  out.append(R"(,"done":true,"done_reason":")").append(done_reason(event.stop_reason)).append("\"");
  // Nothing is kept that the next request could hand back; an empty one is taken.
  if (options_.endpoint == Endpoint::kGenerate) out += R"(,"context":[])";
  append_timings(out, event, queue_wait_ms_);
  out.append(R"(,"llorch":)").append(wire::encode(event)).append("}");
  if (options_.stream) out += '\n';
}

void AnswerRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  if (options_.stream) {
    append_error(out, error);
    out += '\n';
    return;
  }
  net::http::Response response = error_response(wire::to_error(error), identity_.correlation_id);
  out += response.body;
  head_ = {.status = response.status, .headers = std::move(response.headers)};
}

std::string empty_answer(const AnswerOptions& options, std::int64_t created_unix_s, std::string_view reason) {
  std::string out = opening_of(options, created_unix_s);
  out += options.endpoint == Endpoint::kChat ? R"(,"message":{"role":"assistant","content":""})" : R"(,"response":"")";
  return out + fmt::format(R"(,"done":true,"done_reason":"{}"}})", reason);
}

}  // namespace llorch::orchestratord::http::ollama
