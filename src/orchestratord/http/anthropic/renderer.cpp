#include "orchestratord/http/anthropic/renderer.h"

#include <fmt/format.h>

#include "base/append.h"
#include "base/json_text.h"
#include "net/sse/sse.h"
#include "orchestratord/http/anthropic/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

// Caches are shared and their hits not told.
void append_usage(std::string& out, std::int64_t tokens_in, std::int64_t tokens_out) {
  base::append(
      out, R"({{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{}}})",
      tokens_in, tokens_out);
}

std::string_view stop_reason(wire::StopReason reason, bool has_calls) {
  switch (reason) {
    case wire::StopReason::kMaxTokens: return "max_tokens";
    case wire::StopReason::kContext: return "model_context_window_exceeded";
    case wire::StopReason::kStop: return has_calls ? "tool_use" : "stop_sequence";
    case wire::StopReason::kEos: break;
  }
  return has_calls ? "tool_use" : "end_turn";
}

std::string call_block(std::string_view id, std::string_view name, std::string_view input) {
  std::string out = fmt::format(R"({{"type":"tool_use","id":"{}","name":)", id);
  base::append_json_string(out, name);
  return out.append(R"(,"input":)").append(input).append("}");
}

}  // namespace

MessageRenderer::MessageRenderer(const AnswerOptions& options, const chat::AnswerIdentity& identity)
    : options_(options), identity_(identity) {
  if (options.reading) reader_.emplace(options.reading);
  head_.headers = options.stream ? net::http::sse_headers() : net::http::json_response(200, "").headers;
  head_.headers.set("Request-Id", identity.correlation_id.value);
}

void MessageRenderer::append_opening(std::string& out) const {
  out.append(R"({"id":"msg_)").append(identity_.job_id.value);
  out += R"(","type":"message","role":"assistant","model":)";
  base::append_json_string(out, options_.model);
}

void MessageRenderer::append_stop(const wire::EndEvent& event, std::string& out) const {
  wire::StopReason reason = event.stop_reason;
  // Its max_tokens was lowered to what the context had left.
  if (reason == wire::StopReason::kMaxTokens && event.tokens_out < options_.max_tokens) {
    reason = wire::StopReason::kContext;
  }
  const std::string_view name = stop_reason(reason, reader_ && reader_->calls() > 0);
  out.append(R"("stop_reason":")").append(name).append(R"(","stop_sequence":)");
  if (name == "stop_sequence" && options_.stop.size() == 1) {
    base::append_json_string(out, options_.stop.front());
  } else {
    out += "null";  // of several the engine does not tell which
  }
}

void MessageRenderer::queued(const wire::QueuedEvent& event, const streams::EventId&, std::string&) { wait_ = event; }

void MessageRenderer::started(const wire::StartedEvent&, const streams::EventId&, std::string& out) {
  wait_.reset();
  begin(out);
}

void MessageRenderer::begin(std::string& out) {
  if (begun_ || !options_.stream) return;
  begun_ = true;
  out += "event: message_start\ndata: {\"type\":\"message_start\",\"message\":";
  append_opening(out);
  out += R"(,"content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
  append_usage(out, options_.tokens_in, 0);
  out += "}}\n\n";
}

void MessageRenderer::open_block_event(std::string_view type, std::string& out) const {
  base::append(out, "event: {0}\ndata: {{\"type\":\"{0}\",\"index\":{1}", type, blocks_count_);
}

void MessageRenderer::add_text(Kind kind, std::string_view text, std::string& out) {
  const bool is_thought = kind == Kind::kReasoning;
  if (open_ != kind) {
    close_block(out);
    open_ = kind;
    if (options_.stream) {
      open_block_event("content_block_start", out);
      out += is_thought ? R"(,"content_block":{"type":"thinking","thinking":"","signature":""})"
                        : R"(,"content_block":{"type":"text","text":""})";
      out += "}\n\n";
    }
  }
  if (!options_.stream) {
    text_ += text;
    return;
  }
  open_block_event("content_block_delta", out);
  out += is_thought ? R"(,"delta":{"type":"thinking_delta","thinking":)" : R"(,"delta":{"type":"text_delta","text":)";
  base::append_json_string(out, text);
  out += "}}\n\n";
}

void MessageRenderer::close_block(std::string& out) {
  if (!open_) return;
  if (options_.stream) {
    open_block_event("content_block_stop", out);
    out += "}\n\n";
  } else {
    const bool is_thought = open_ == Kind::kReasoning;
    blocks_ += blocks_.empty() ? "" : ",";
    blocks_ += is_thought ? R"({"type":"thinking","thinking":)" : R"({"type":"text","text":)";
    base::append_json_string(blocks_, text_);
    blocks_ += is_thought ? R"(,"signature":""})" : "}";
    text_.clear();
  }
  ++blocks_count_;
  open_.reset();
}

void MessageRenderer::add_call(const chat::Part& call, std::string& out) {
  close_block(out);
  const std::string id = chat::call_id("toolu_", identity_.job_id, call);
  if (options_.stream) {
    open_block_event("content_block_start", out);
    out.append(R"(,"content_block":)").append(call_block(id, call.name, "{}")).append("}\n\n");
    open_block_event("content_block_delta", out);
    out += R"(,"delta":{"type":"input_json_delta","partial_json":)";
    base::append_json_string(out, call.text);
    out += "}}\n\n";
    open_block_event("content_block_stop", out);
    out += "}\n\n";
  } else {
    blocks_.append(blocks_.empty() ? "" : ",").append(call_block(id, call.name, call.text));
  }
  ++blocks_count_;
}

void MessageRenderer::take_parts(std::string& out) {
  for (const chat::Part& part : parts_) {
    if (part.kind == Kind::kCall) {
      add_call(part, out);
    } else {
      add_text(part.kind, part.text, out);
    }
  }
  parts_.clear();
}

void MessageRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  begin(out);
  if (reader_) {
    reader_->take(token, parts_);
    return take_parts(out);
  }
  if (!token.t.empty()) add_text(Kind::kContent, token.t, out);
}

void MessageRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  begin(out);
  if (reader_) {
    reader_->finish(parts_);
    take_parts(out);
  }
  close_block(out);
  if (options_.stream) {
    out += "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{";
    append_stop(event, out);
    out += "}";
  } else {
    append_opening(out);
    out.append(R"(,"content":[)").append(blocks_).append("],");
    append_stop(event, out);
  }
  out += R"(,"usage":)";
  append_usage(out, event.tokens_in, event.tokens_out);
  out.append(R"(,"llorch":)").append(wire::encode(event)).append("}");
  if (options_.stream) out += "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
}

void MessageRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  if (options_.stream) {
    out += "event: error\ndata: ";
    append_error(out, error, identity_.correlation_id);
    out += "\n\n";
    return;
  }
  net::http::Response response = error_response(wire::to_error(error), identity_.correlation_id);
  out += response.body;
  head_ = {.status = response.status, .headers = std::move(response.headers)};
}

void MessageRenderer::keep_alive(std::string& out) {
  if (wait_) chat::append_wait(out, *wait_);
  out += "event: ping\ndata: {\"type\":\"ping\"}\n\n";
}

}  // namespace llorch::orchestratord::http::anthropic
