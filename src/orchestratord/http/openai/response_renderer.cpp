#include "orchestratord/http/openai/response_renderer.h"

#include <fmt/format.h>

#include <iterator>

#include "base/error_code.h"
#include "base/json_text.h"
#include "net/sse/sse.h"
#include "orchestratord/http/openai/errors.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

// Caches are shared and their hits not told; thoughts are not told apart.
void append_response_usage(std::string& out, const wire::EndEvent& end) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":0,"cache_write_tokens":0}},)"
                 R"("output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}})",
                 end.tokens_in, end.tokens_out, end.tokens_in + end.tokens_out);
}

bool is_cut(wire::StopReason reason) { return finish_reason(reason) == "length"; }

}  // namespace

ResponseRenderer::ResponseRenderer(const AnswerOptions& options, const AnswerIdentity& identity)
    : options_(options),
      identity_(identity),
      text_event_members_(
          fmt::format(R"(,"item_id":"msg_{}","output_index":0,"content_index":0)", identity.job_id.value)),
      new_logprobs_(options.endpoint) {
  head_.headers = options.stream ? net::http::sse_headers() : net::http::json_response(200, "").headers;
  head_.headers.set("X-Request-Id", identity.correlation_id.value);
}

void ResponseRenderer::open_event(std::string_view type, std::string& out) {
  fmt::format_to(std::back_inserter(out), R"(event: {0}{1}data: {{"type":"{0}","sequence_number":{2})", type, '\n',
                 sequence_number_++);
}

void ResponseRenderer::open_text_event(std::string_view type, std::string& out) {
  open_event(type, out);
  out += text_event_members_;
}

void ResponseRenderer::queued(const wire::QueuedEvent& event, const streams::EventId&, std::string& out) {
  if (options_.stream) append_wait(out, event);
}

void ResponseRenderer::started(const wire::StartedEvent&, const streams::EventId&, std::string& out) { begin(out); }

void ResponseRenderer::begin(std::string& out) {
  if (begun_ || !options_.stream) return;
  begun_ = true;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    open_event(type, out);
    out += R"(,"response":)";
    append_response({.status = "in_progress"}, out);
    out += "}\n\n";
  }
  open_event("response.output_item.added", out);
  fmt::format_to(std::back_inserter(out),
                 R"(,"output_index":0,"item":{{"id":"msg_{}","type":"message","status":"in_progress",)"
                 R"("role":"assistant","content":[]}}}})",
                 identity_.job_id.value);
  out += "\n\n";
  open_text_event("response.content_part.added", out);
  out += R"(,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}})";
  out += "\n\n";
}

void ResponseRenderer::token(const streams::TokenView& token, const streams::EventId&, std::string& out) {
  begin(out);
  text_ += token.t;
  if (!token.logprobs.empty()) {
    logprobs_.pop_back();
    logprobs_.append(logprobs_ == "[" ? "" : ",").append(token.logprobs).append("]");
  }
  if (!options_.stream || (token.t.empty() && token.logprobs.empty())) return;
  new_logprobs_.add(token);
  open_text_event("response.output_text.delta", out);
  out += R"(,"delta":)";
  base::append_json_string(out, token.t);
  out += R"(,"logprobs":)";
  new_logprobs_.write(out);
  out += "}\n\n";
}

void ResponseRenderer::append_part(std::string& out) const {
  out.append(R"({"type":"output_text","annotations":[],"logprobs":)").append(logprobs_).append(R"(,"text":)");
  base::append_json_string(out, text_);
  out += '}';
}

void ResponseRenderer::append_item(std::string_view status, std::string& out) const {
  fmt::format_to(std::back_inserter(out),
                 R"({{"id":"msg_{}","type":"message","status":"{}","role":"assistant","content":[)",
                 identity_.job_id.value, status);
  append_part(out);
  out += "]}";
}

void ResponseRenderer::append_response(const Outcome& outcome, std::string& out) const {
  fmt::format_to(std::back_inserter(out),
                 R"({{"id":"resp_{}","object":"response","created_at":{},"status":"{}","error":)",
                 identity_.job_id.value, identity_.created_unix_s, outcome.status);
  if (outcome.error != nullptr) {
    out += R"({"code":"server_error","message":)";
    base::append_json_string(out, outcome.error->message);
    out.append(R"(,"llorch":)").append(wire::encode(*outcome.error)).append("}");
  } else {
    out += "null";
  }
  const bool cut = outcome.end != nullptr && is_cut(outcome.end->stop_reason);
  out += R"(,"incomplete_details":)";
  out += cut ? R"({"reason":"max_output_tokens"})" : "null";
  out.append(",").append(options_.asked).append(R"(,"model":)");
  base::append_json_string(out, options_.model);
  out += R"(,"previous_response_id":null,"service_tier":)";
  out += options_.is_flex ? R"("flex")" : R"("default")";
  out += R"(,"store":false,"truncation":"disabled","output":[)";
  if (outcome.end != nullptr) append_item(outcome.status, out);
  out += R"(],"usage":)";
  if (outcome.end != nullptr) {
    append_response_usage(out, *outcome.end);
    append_provenance(out, *outcome.end);
  } else {
    out += "null";
  }
  out += '}';
}

void ResponseRenderer::end_item(std::string& out) {
  open_text_event("response.output_text.done", out);
  out += R"(,"text":)";
  base::append_json_string(out, text_);
  out.append(R"(,"logprobs":)").append(logprobs_).append("}\n\n");
  open_text_event("response.content_part.done", out);
  out += R"(,"part":)";
  append_part(out);
  out += "}\n\n";
}

void ResponseRenderer::end(const wire::EndEvent& event, const streams::EventId&, std::string& out) {
  begin(out);
  const std::string_view status = is_cut(event.stop_reason) ? "incomplete" : "completed";
  if (options_.stream) {
    end_item(out);
    open_event("response.output_item.done", out);
    out += R"(,"output_index":0,"item":)";
    append_item(status, out);
    out += "}\n\n";
    open_event(is_cut(event.stop_reason) ? "response.incomplete" : "response.completed", out);
    out += R"(,"response":)";
  }
  append_response({.status = status, .end = &event}, out);
  if (options_.stream) out += "}\n\n";
}

void ResponseRenderer::error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) {
  if (options_.stream) {
    begin(out);
    open_event("response.failed", out);
    out += R"(,"response":)";
    append_response({.status = "failed", .error = &error}, out);
    out += "}\n\n";
    return;
  }
  net::http::Response response = error_response(wire::to_error(error), identity_.correlation_id);
  out += response.body;
  head_ = {.status = response.status, .headers = std::move(response.headers)};
}

void ResponseRenderer::keep_alive(std::string& out) { net::sse::append_comment(out, "keep-alive"); }

}  // namespace llorch::orchestratord::http::openai
